// Why a stage's graph does not have a node: which stage removed it, and its reason.

import { expect, test } from "vitest";

import type { State } from "../src/state";
import { whyGone } from "../src/views/graph/gone";
import { node } from "./made";

/** The stages by name: the values of each of their graphs, and the reasons. */
const STAGES: [string, Record<string, number[]>, Record<string, string>][] = [
  ["dynamo", { dynamo: [9] }, {}],
  ["metadata", { forward: [1, 2, 3] }, {}],
  ["joint", { joint: [1, 2, 3, 4] }, {}],
  ["trace", { joint: [1, 2, 4, 5] }, { n3: "the wrapper makes this view." }],
  ["partition", { forward: [1, 2], backward: [4, 1] }, {}],
  ["lower", { forward: [1] }, {}],
];

function at(stage: number, role: string): State {
  const graphs = STAGES.flatMap(([, of]) => Object.values(of));
  const stages = STAGES.map(([name, of, reasons]) => ({
    name,
    summary: `the summary of ${name}`,
    graphs: new Map(Object.entries(of).map(([key, values]) => [key, graphs.indexOf(values)])),
    evidence: Object.entries(reasons).map(([subject, reason]) => ({ subject, reason })),
  }));
  return {
    compilation: { stages },
    recording: { graphValues: (_: unknown, graph: number) => graphs[graph] },
    selection: { stage, role },
  } as unknown as State;
}

const words = (value: number, stage: number, role: string): string =>
  whyGone(at(stage, role), node(value, { valueIndex: value, users: [value + 1] })).words;

test("the stage that removed it gives its reason, or what it did", () => {
  expect(words(3, 3, "joint")).toBe("Stage `trace` removed it: the wrapper makes this view.");
  expect(words(3, 4, "backward")).toBe("Stage `trace` removed it: the wrapper makes this view.");
  expect(words(5, 4, "forward")).toBe("Stage `partition` removed it: the summary of partition.");
  const unused = node(5, { valueIndex: 5 });
  expect(whyGone(at(4, "forward"), unused).words).toBe("Stage `partition` removed it: nothing used its value.");
});

test("another graph of the stage has it", () => {
  expect(whyGone(at(4, "forward"), node(4, { valueIndex: 4 }))).toEqual({ role: "backward", words: "" });
});

test("an earlier stage does not have it yet", () => {
  expect(words(5, 2, "joint")).toBe("Stage `trace` is the first that has it.");
});

test("nothing is claimed of a backward that is compiled later, of what Dynamo captured, and of an unknown value", () => {
  expect(words(4, 5, "forward")).toBe("");
  expect(words(2, 5, "forward")).toBe("Stage `lower` removed it: the summary of lower.");
  expect(words(9, 3, "joint")).toBe("");
  expect(words(-1, 3, "joint")).toBe("");
});
