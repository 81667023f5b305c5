import { describe, expect, test } from "vitest";

import { grouped, held, onlyIn, type Row, totals } from "../src/views/saved/ledger";

function row(name: string, nbytes: number | null, from: number, until: number, extra: Partial<Row> = {}): Row {
  return {
    name, fate: from < 0 ? "saved" : "recomputed", kind: "tensor", dtype: "torch.float32", shape: [], nbytes, producer: "aten.mul.Tensor", module: "h.0", source: "", why: "",
    donated: false, whyDonated: "", hook: "", checked: false, consumers: [], from, until, ...extra,
  };
}

describe("what is held while the backward runs", () => {
  test("a saved value until its last reader, a value computed again from its node on", () => {
    expect(held([row("a", 8, -1, 2), row("b", 4, 1, 2), row("c", 16, -1, 0)])).toEqual([
      { at: 0, saved: 24, again: 0 }, { at: 1, saved: 8, again: 4 }, { at: 3, saved: 0, again: 0 },
    ]);
  });
  test("inputs and symbolic sizes are not counted", () => expect(held([row("x", 8, -1, 2, { fate: "input" }), row("s", null, -1, 2)])).toEqual([]));
  test("the most at one time is the peak", () => {
    expect(totals([row("a", 8, -1, 1), row("b", 4, 0, 3), row("c", 6, 2, 3)]).peak).toBe(12);
  });
});

test("bytes by module, the largest first, what is computed again apart", () => {
  expect(grouped([row("a", 1, -1, 0), row("b", 2, -1, 0, { module: "h.1" }), row("c", 4, 0, 1, { module: "h.1" })], "module")).toEqual([
    { name: "h.1", saved: 2, again: 4 }, { name: "h.0", saved: 1, again: 0 },
  ]);
});

test("what one cut keeps and the other does not", () => {
  const [a, b] = [row("a", 1, -1, 0), row("b", 1, -1, 0)];
  expect(onlyIn([a, b], [b], "saved").map(({ name }) => name)).toEqual(["a"]);
});
