import { expect, test } from "vitest";
import { edges, relation } from "../src/views/backward/relation";
import type { VisitRecord } from "../src/wire";

function visit(node: string, waits_for: number[]): VisitRecord {
  return { node, subject: "", steps: [], hooks: [], waits_for, frees: [], parts: [], copied: "" };
}

const VISITS = [
  visit("GraphRoot", []),
  visit("MulBackward0", [0]),
  visit("SinBackward0", [1]),
  visit("AccumulateGrad", [1, 2]),
];

test("a chosen node is told from those that feed it and those that wait for it", () => {
  expect(VISITS.map((_, other) => relation(VISITS, 1, other))).toEqual(["feeds", "chosen", "waits", "waits"]);
  expect(VISITS.map((_, other) => relation(VISITS, 3, other))).toEqual([null, "feeds", "feeds", "chosen"]);
});

test("there is an edge for each gradient that a node waits for", () => {
  expect(edges(VISITS).map(({ from, to }) => `${from} to ${to}`)).toEqual(["0 to 1", "1 to 2", "1 to 3", "2 to 3"]);
});
