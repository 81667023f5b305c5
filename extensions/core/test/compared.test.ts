import { expect, test } from "vitest";

import { differingLines } from "../src/views/compared/differing";

test("a line is lit in a text if one of the others lacks it", () => {
  const lit = differingLines([
    ["def f(a, b):", "  base = base_of(a)", "  return out"],
    ["def f(a, b):", "  return out"],
    ["def f(a, b):", "  check(a)", "  return out"],
  ]);
  expect(lit.map((lines) => [...lines])).toEqual([[1], [], [1]]);
});

test("equal texts, one text and no text have no lit line", () => {
  expect(differingLines([["a"], ["a"], ["a"]]).every((lines) => lines.size === 0)).toBe(true);
  expect(differingLines([["a"]]).map((lines) => lines.size)).toEqual([0]);
  expect(differingLines([])).toEqual([]);
});
