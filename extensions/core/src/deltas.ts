// A page that holds a recording holds the long columns of its graphs as differences: 5, 6, 7 is written 5, 1, 1, of
// which gzip makes next to nothing. aotviz/widgets/packing.py writes them and says so in "deltas"; files have none.

import type { RecordingData, Wire } from "./wire";

const COLUMNS = ["name", "value", "sequence"] as const; // those of packing.py

/** The tree of a recording with its columns as they were. What has another shape is left for the check to refuse. */
export function withoutDeltas(tree: Wire): Wire {
  if (!(tree instanceof Map) || tree.get("deltas") !== true) return tree;
  for (const compilation of list(tree.get("compilations"))) {
    for (const graph of list(compilation instanceof Map ? compilation.get("graphs") : undefined)) {
      if (!(graph instanceof Map)) continue;
      for (const name of COLUMNS) sum(list(graph.get(name)));
    }
  }
  return tree;
}

/** The same for a recording that was read without a tree. */
export function addUp(data: RecordingData): void {
  for (const { graphs } of data.compilations) for (const graph of graphs) for (const name of COLUMNS) sum(graph[name]);
}

function list(value: Wire | undefined): Wire[] {
  return Array.isArray(value) ? (value as Wire[]) : [];
}

function sum(column: Wire[]): void {
  let total = 0;
  for (let i = 0; i < column.length; i++) {
    const step = column[i];
    if (typeof step !== "number") return;
    column[i] = total += step;
  }
}
