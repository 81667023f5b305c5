// The nodes whose results a node reads, and the nodes that read its result: one step, or all steps.

import type { Graph } from "../../graph";

export interface DefUse {
  readonly inputs: ReadonlySet<number>; // nodes
  readonly users: ReadonlySet<number>; // nodes
}

export function defUse(graph: Graph, node: number, transitive: boolean): DefUse {
  const from = graph.nodes[node];
  if (!from) return { inputs: new Set(), users: new Set() };
  if (!transitive) return { inputs: new Set(from.inputs), users: new Set(from.users) };
  return { inputs: reach(node, (at) => graph.nodes[at]!.inputs), users: reach(node, (at) => graph.nodes[at]!.users) };
}

function reach(start: number, next: (node: number) => readonly number[]): Set<number> {
  const seen = new Set<number>([start]);
  const stack = [start];
  for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
    for (const other of next(at)) {
      if (seen.has(other)) continue;
      seen.add(other);
      stack.push(other);
    }
  }
  seen.delete(start);
  return seen;
}
