// What a stage changed, in numbers: the nodes that it added and removed. Nodes are identified by their values, because
// a renamed node still has the same value.

import { previousGraph, type Recording } from "./model";
import type { CompilationData } from "./wire";

export interface GraphChange {
  readonly role: string;
  readonly nodes: number;
  readonly added: number;
  readonly removed: number;
  readonly bytes: number; // of what its nodes compute, each storage once; -1 if a size is symbolic
  readonly isNew: boolean; // no earlier stage had a graph of this role
}

/** One for each graph of a stage, in the order of the roles. */
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

/** Compares multisets: a value of two nodes counts twice, and so do nodes without a value. */
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
