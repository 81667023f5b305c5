// Which elements of a storage a tensor covers, from its shape, strides and offset. Pure numbers, no drawing.

import type { AliasTensor, StorageRecord } from "../../wire";

const MOST_ELEMENTS = 4096; // of a tensor whose elements are computed one by one; for a larger one only both ends are
const MOST_CELLS = 24; // of a storage that is drawn element by element

/** Bytes `[from, to)` of a storage; `index` is the element's place in the tensor, -1 where several are one run. */
export interface Run {
  readonly from: number;
  readonly to: number;
  readonly index: number;
}

export interface Window {
  readonly runs: readonly Run[];
  readonly exact: boolean; // false where gaps between the ends are not drawn
}

/** Null if a size, a stride or the offset is symbolic, or if the layout has no strides. */
export function windowOf(tensor: AliasTensor, cells: boolean): Window | null {
  const { shape, stride, offset, itemsize } = tensor;
  if (!isNumbers(shape) || !isNumbers(stride) || typeof offset !== "number" || shape.length !== stride.length)
    return null;
  const count = shape.reduce((product, size) => product * size, 1);
  if (!(count >= 0)) return null;
  if (count === 0) return { runs: [], exact: true };
  const ends = shape.map((size, i) => (size - 1) * stride[i]!);
  const low = offset + ends.reduce((sum, end) => sum + Math.min(0, end), 0);
  const high = offset + ends.reduce((sum, end) => sum + Math.max(0, end), 0);
  const dense = high - low + 1 === count && new Set(ends).size > 0;
  if (count > MOST_ELEMENTS || (dense && !cells)) {
    return { runs: [{ from: low * itemsize, to: (high + 1) * itemsize, index: -1 }], exact: dense };
  }
  const elements = places(shape, stride, offset);
  if (cells)
    return {
      runs: elements.map((place, index) => ({ from: place * itemsize, to: (place + 1) * itemsize, index })),
      exact: true,
    };
  return {
    runs: merged(
      [...new Set(elements)].sort((a, b) => a - b),
      itemsize,
    ),
    exact: true,
  };
}

/** The size of an element if the storage is small enough to be drawn element by element, else 0. */
export function cellBytes(storage: StorageRecord): number {
  const size = Math.min(...storage.tensors.map(({ itemsize }) => itemsize));
  const same = storage.tensors.every(({ itemsize }) => itemsize === size);
  return storage.nbytes !== null && same && size > 0 && storage.nbytes / size <= MOST_CELLS ? size : 0;
}

const windows = new WeakMap<AliasTensor, Window | null>(); // a cache: each is compared with many others

function covered(tensor: AliasTensor): Window | null {
  if (!windows.has(tensor)) windows.set(tensor, windowOf(tensor, false));
  return windows.get(tensor)!;
}

/** Whether two tensors of one storage overlap; undefined if unknown. */
export function overlap(a: AliasTensor, b: AliasTensor): boolean | undefined {
  const [first, second] = [covered(a), covered(b)];
  if (!first || !second) return undefined;
  const meet = first.runs.some((one) => second.runs.some((other) => one.from < other.to && other.from < one.to));
  return meet && !(first.exact && second.exact) ? undefined : meet;
}

/** Each tensor's depth in the chains of views, and the order in which a chain is read: a view after what it is of. */
export function chains(tensors: readonly AliasTensor[]): { index: number; depth: number }[] {
  const children = new Map<number, number[]>();
  tensors.forEach(({ view_of }, index) => {
    const list = children.get(view_of);
    if (list) list.push(index);
    else children.set(view_of, [index]);
  });
  const out: { index: number; depth: number }[] = [];
  const pending = (children.get(-1) ?? []).map((index) => ({ index, depth: 0 })).reverse();
  for (let next = pending.pop(); next; next = pending.pop()) {
    out.push(next);
    const { index, depth } = next;
    pending.push(...(children.get(index) ?? []).map((child) => ({ index: child, depth: depth + 1 })).reverse());
  }
  return out;
}

function isNumbers(values: readonly (number | string)[]): values is number[] {
  return values.every((value) => typeof value === "number");
}

/** The position of each element, in the tensor's own order. */
function places(shape: readonly number[], stride: readonly number[], offset: number): number[] {
  let found = [offset];
  shape.forEach((size, i) => {
    found = found.flatMap((place) => Array.from({ length: size }, (_, k) => place + k * stride[i]!));
  });
  return found;
}

function merged(elements: readonly number[], itemsize: number): Run[] {
  const runs: { from: number; to: number; index: number }[] = [];
  for (const place of elements) {
    const last = runs.at(-1);
    if (last && last.to === place * itemsize) last.to += itemsize;
    else runs.push({ from: place * itemsize, to: (place + 1) * itemsize, index: -1 });
  }
  return runs;
}
