// How many bytes the nodes of a graph allocate.

import type { Texts } from "./format";
import type { Graph } from "./graph";
import type { CompilationData, ValueRecord } from "./wire";

/** What knows the dtypes and the values: a State does. */
interface Known {
  readonly recording: Texts;
  readonly compilation: Pick<CompilationData, "values">;
}

/** Of one element, by the name of the dtype; at least 1. The same as element_bytes in aotviz/recording/sizes.py. */
export function elementBytes(dtype: string): number {
  return Math.max(1, Math.floor(Number(/\d+/.exec(dtype)?.[0] ?? 8) / 8)); // torch.bool has no number
}

/** Null unless this is a tensor with known sizes. */
export function outputBytes({ recording }: Pick<Known, "recording">, value: ValueRecord | null): number | null {
  if (value?.kind !== "tensor") return null;
  let size = elementBytes(recording.text(value.dtype));
  for (const length of value.shape) {
    if (typeof length !== "number") return null;
    size *= length;
  }
  return size;
}

/**
 * The bytes that each node allocates, null if a size is symbolic. Inputs and views allocate nothing. The items of a
 * tuple count for the node that computes the tuple. The same as made_bytes in aotviz/recording/sizes.py.
 */
export function madeBytes(state: Known, graph: Graph): (number | null)[] {
  const { values } = state.compilation;
  const storages = new Set<number>();
  const seen = new Set<ValueRecord>(); // in a hostile recording a tuple may contain itself
  const made = (whole: ValueRecord | null): number | null => {
    let sum: number | null = 0;
    for (const pending = [whole]; pending.length;) {
      const value = pending.pop();
      if (!value || seen.has(value)) continue;
      seen.add(value);
      for (const part of value.parts) pending.push(values[part] ?? null);
      if (value.kind !== "tensor" || storages.has(value.storage)) continue;
      const size = outputBytes(state, value);
      sum = sum === null || size === null ? null : sum + size;
      if (value.storage >= 0) storages.add(value.storage);
    }
    return sum;
  };
  for (const { op, value } of graph.nodes) if (op === "p") made(value);
  return graph.nodes.map(({ op, value }) => (op === "p" || op === "o" ? 0 : made(value)));
}
