// What a stage changed, in numbers: nodes that came and went, by the values they hold (a node that was only renamed
// holds the value that it held).

import { previousGraph, type Recording } from "./model";
import type { CompilationData } from "./wire";

export interface GraphChange {
  readonly role: string;
  readonly nodes: number;
  readonly added: number;
  readonly removed: number;
  readonly bytes: number; // of what its nodes make, each storage once; -1 where a size is symbolic
  readonly isNew: boolean; // no stage before had a graph of this role
}

/** Per graph of a stage; in the order of its roles. */
export function changes(recording: Recording, compilation: CompilationData, stage: number): GraphChange[] {
  return [...(compilation.stages[stage]?.graphs ?? [])].map(([role, graph]) => {
    const now = recording.graphValues(compilation, graph);
    const before = previousGraph(compilation, stage, role);
    const earlier = before?.role === role ? compilation.stages[before.stage]!.graphs.get(role) : undefined;
    const known = {
      role,
      nodes: now.length,
      bytes: recording.graphBytes(compilation, graph),
      isNew: earlier === undefined,
    };
    if (earlier === undefined || earlier === graph) return { ...known, added: 0, removed: 0 };
    return { ...known, ...difference(recording.graphValues(compilation, earlier), now) };
  });
}

/** As multisets: a value that two nodes hold counts twice, and so do nodes without one. */
export function difference(before: readonly number[], now: readonly number[]): { added: number; removed: number } {
  const counts = new Map<number, number>();
  for (const value of before) counts.set(value, (counts.get(value) ?? 0) + 1);
  let added = 0;
  for (const value of now) {
    const left = counts.get(value) ?? 0;
    if (left > 0) counts.set(value, left - 1);
    else added++;
  }
  return { added, removed: before.length - (now.length - added) };
}
