import { readFileSync } from "node:fs";

import { describe, expect, test } from "vitest";

import { cost, grouped, held, onlyIn, type Row, rowsOf, totals } from "../src/views/saved/ledger";
import type { SavedTensorRecord } from "../src/wire";

const counted = JSON.parse(readFileSync(new URL("kept.json", import.meta.url), "utf8")) as {
  record: SavedTensorRecord;
  cost: number | null;
}[]; // by Python

function row(name: string, nbytes: number | null, from: number, until: number, extra: Partial<Row> = {}): Row {
  return {
    name,
    fate: from < 0 ? "saved" : "recomputed",
    kind: "tensor",
    dtype: "torch.float32",
    shape: [],
    nbytes,
    cost: extra.fate === "input" ? 0 : nbytes,
    whose: "",
    producer: "aten.mul.Tensor",
    module: "h.0",
    source: "",
    why: "",
    donated: false,
    whyDonated: "",
    hook: "",
    checked: false,
    consumers: [],
    from,
    until,
    heldUntil: until,
    ...extra,
  };
}

describe("what is held while the backward runs", () => {
  test("a saved value until its last reader, a value computed again from its node on", () => {
    expect(held([row("a", 8, -1, 2), row("b", 4, 1, 2), row("c", 16, -1, 0)])).toEqual([
      { at: 0, saved: 24, again: 0 },
      { at: 1, saved: 8, again: 4 },
      { at: 3, saved: 0, again: 0 },
    ]);
  });
  test("inputs and symbolic sizes are not counted", () =>
    expect(held([row("x", 8, -1, 2, { fate: "input" }), row("s", null, -1, 2)])).toEqual([]));
  test("the most at one time is the peak", () => {
    expect(totals([row("a", 8, -1, 1), row("b", 4, 0, 3), row("c", 6, 2, 3)]).peak).toBe(12);
  });
});

test("bytes by module, the largest first, what is computed again apart", () => {
  expect(
    grouped(
      [row("a", 1, -1, 0), row("b", 2, -1, 0, { module: "h.1" }), row("c", 4, 0, 1, { module: "h.1" })],
      "module",
    ),
  ).toEqual([
    { name: "h.1", saved: 2, again: 4 },
    { name: "h.0", saved: 1, again: 0 },
  ]);
});

test("what one cut keeps and the other does not", () => {
  const [a, b] = [row("a", 1, -1, 0), row("b", 1, -1, 0)];
  expect(onlyIn([a, b], [b], "kept").map(({ name }) => name)).toEqual(["a"]);
});

describe("values that lie in one storage", () => {
  // An input, a value and two views of it.
  const [input, first, ...others] = counted.slice(0, 4).map(({ record }) => record);
  const rows = rowsOf({ saved_tensors: [input!, first!, ...others], recomputed: [] });

  test("cost what Python says", () => {
    expect(counted.map(({ record }) => cost(record))).toEqual(counted.map((row) => row.cost));
    expect(new Set(counted.map((row) => row.cost))).toContain(null);
  });
  test("are told from inputs, and say whose memory it is", () => {
    expect(rows.map(({ fate, whose }) => [fate, whose])).toEqual([
      ["input", "x"],
      ["saved", ""],
      ["shared", first!.name],
      ["shared", first!.name],
    ]);
  });
  test("count once in each sum", () => {
    expect(totals(rows)).toMatchObject({ saved: 96, values: 3, inputs: 1, peak: 96 });
    expect(grouped(rows, "producer")).toEqual([{ name: first!.producer, saved: 96, again: 0 }]);
  });
  test("are held until the last of them was read", () => {
    const last = Math.max(...others.map(({ dies_at }) => dies_at));
    expect(last).toBeGreaterThan(first!.dies_at);
    const [begin, end] = held(rows);
    expect(begin).toEqual({ at: 0, saved: 96, again: 0 });
    expect(end!.at).toBeGreaterThan(last);
    expect(end!.saved).toBe(0);
  });
  test("are kept also where another cut keeps them apart", () => {
    expect(
      onlyIn(
        rows,
        rows.map((row) => ({ ...row, fate: row.fate === "shared" ? "saved" : row.fate })),
        "kept",
      ),
    ).toEqual([]);
  });
});
