import { describe, expect, test } from "vitest";

import { cellBytes, chains, overlap, windowOf } from "../src/views/aliasing/geometry";
import { notesAbout, sectionsOf, subjects } from "../src/views/wrapper/lines";
import type { AliasTensor, StorageRecord } from "../src/wire";

function tensor(shape: (number | string)[], stride: number[], offset: number | string = 0, view_of = -1): AliasTensor {
  return { names: [], role: "input", shape, stride, offset, itemsize: 4, view_of, step: "", node: "", source: "" };
}

const spans = (shape: number[], stride: number[], offset = 0): [number, number][] =>
  windowOf(tensor(shape, stride, offset), false)!.runs.map(({ from, to }) => [from, to]);

describe("what a tensor covers of its storage", () => {
  test("a block is one run", () => expect(spans([2, 4], [4, 1], 3)).toEqual([[12, 44]]));
  test("a column has gaps", () =>
    expect(spans([3], [4], 1)).toEqual([
      [4, 8],
      [20, 24],
      [36, 40],
    ]));
  test("an expanded dimension covers its element once", () => expect(spans([5], [0], 2)).toEqual([[8, 12]]));
  test("a scalar is one element", () => expect(spans([], [], 7)).toEqual([[28, 32]]));
  test("an empty tensor covers nothing", () => expect(spans([0, 3], [3, 1])).toEqual([]));
  test("of a huge one with gaps the ends are known, and that there may be gaps", () => {
    expect(windowOf(tensor([1 << 20], [2]), false)).toEqual({
      runs: [{ from: 0, to: 4 * ((1 << 21) - 1), index: -1 }],
      exact: false,
    });
  });
  test("a symbolic size is not drawn", () => expect(windowOf(tensor(["s0"], [1]), false)).toBeNull());
  test("elements keep their own order, so that a transposed view looks it", () => {
    expect(windowOf(tensor([2, 2], [1, 2]), true)!.runs.map(({ from, index }) => [from / 4, index])).toEqual([
      [0, 0],
      [2, 1],
      [1, 2],
      [3, 3],
    ]);
  });
});

describe("overlap", () => {
  test("of windows that share an element", () => expect(overlap(tensor([5], [1]), tensor([5], [1], 3))).toBe(true));
  test("of even and odd elements: none", () => expect(overlap(tensor([4], [2]), tensor([4], [2], 1))).toBe(false));
  test("is not known for symbolic ones", () => expect(overlap(tensor(["s0"], [1]), tensor([4], [1]))).toBeUndefined());
});

describe("chains of views", () => {
  test("a view comes right after what it is taken from, one deeper", () => {
    const tensors = [tensor([8], [1]), tensor([8], [1]), tensor([4], [1], 0, 0), tensor([2], [1], 0, 2)];
    expect(chains(tensors)).toEqual([
      { index: 0, depth: 0 },
      { index: 2, depth: 1 },
      { index: 3, depth: 2 },
      { index: 1, depth: 0 },
    ]);
  });
  test("ten thousand views of views", () => {
    const tensors = Array.from({ length: 10_000 }, (_, i) => tensor([1], [1], 0, i - 1));
    expect(chains(tensors).at(-1)).toEqual({ index: 9999, depth: 9999 });
  });
});

test("a large storage has no cells", () => {
  const storage = (nbytes: number): StorageRecord => ({
    nbytes,
    device: "cpu",
    tensors: [tensor([4], [1])],
    writes: [],
    left_out: 0,
  });
  expect([cellBytes(storage(32)), cellBytes(storage(4000))]).toEqual([4, 0]);
});

test("the parts of a wrapper are found by their first lines", () => {
  const source =
    "class f_autograd(Function):\n    @staticmethod\n    def forward(ctx):\n        def backward(): ...\n\n    def backward(ctx): ...\n\n\ndef f(x):\n    return x\n";
  expect(sectionsOf(source)).toEqual([
    { title: "autograd.Function", line: 0 },
    { title: "forward", line: 2 },
    { title: "backward", line: 5 },
    { title: "f()", line: 8 },
  ]);
});

describe("from a name to the wrapper's lines", () => {
  const note = (subject: string) => ({ first: 1, last: 1, fact: "", subject });
  test("a note about a base is about its members", () =>
    expect(subjects("base of a, b")).toEqual(["base of a, b", "a", "b"]));
  test("each name finds its own", () => {
    expect(notesAbout([note("a and b"), note("steps"), note(""), note("base of a, b")], ["b"])).toEqual([0, 3]);
  });
});
