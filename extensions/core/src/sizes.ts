// How many bytes the nodes of a graph allocate.

import type { Graph } from "./graph";
import type { State } from "./state";
import type { ValueRecord } from "./wire";

/** Null unless this is a tensor with known sizes. */
export function outputBytes(state: State, value: ValueRecord | null): number | null {
  if (value?.kind !== "tensor") return null;
  let size = Number(/\d+/.exec(state.recording.text(value.dtype))?.[0] ?? 8) / 8; // torch.bool has no number
  for (const length of value.shape) {
    if (typeof length !== "number") return null;
    size *= length;
  }
  return size;
}

/**
 * The bytes that each node allocates, counted as in the rail: inputs and views allocate nothing. The items of a tuple
 * count for the node that computes the tuple.
 */
export function madeBytes(state: State, graph: Graph): number[] {
  const { values } = state.compilation;
  const storages = new Set<number>();
  const seen = new Set<ValueRecord>(); // in a hostile recording a tuple may contain itself
  const made = (whole: ValueRecord | null): number => {
    let sum = 0;
    for (const pending = [whole]; pending.length;) {
      const value = pending.pop();
      if (!value || seen.has(value)) continue;
      seen.add(value);
      for (const part of value.parts) pending.push(values[part] ?? null);
      if (!storages.has(value.storage)) sum += outputBytes(state, value) ?? 0;
      if (value.storage >= 0) storages.add(value.storage);
    }
    return sum;
  };
  for (const { op, value } of graph.nodes) if (op === "p") made(value);
  return graph.nodes.map(({ op, value }) => (op === "p" || op === "o" ? 0 : made(value)));
}
