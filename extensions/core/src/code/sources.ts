// The user's lines that a graph comes from, each with the nodes that came from it: the left-hand side of the code view.

import type { Graph } from "../graph";

export interface UserLine {
  readonly line: number;
  readonly code: string;
  readonly scope: string; // function
  readonly nodes: readonly number[];
}

export interface UserFile {
  readonly file: string;
  readonly lines: readonly UserLine[]; // in the file's order
}

/** Files in the order in which the graph first refers to them. Nodes without a known place are left out. */
export function userFiles(graph: Graph): UserFile[] {
  const files = new Map<string, Map<number, { code: string; scope: string; nodes: number[] }>>();
  for (const { index, source } of graph.nodes) {
    if (!source?.file || source.line <= 0) continue;
    let lines = files.get(source.file);
    if (!lines) files.set(source.file, (lines = new Map()));
    const known = lines.get(source.line);
    if (known) known.nodes.push(index);
    else lines.set(source.line, { code: source.code, scope: source.scope, nodes: [index] });
  }
  return [...files].map(([file, lines]) => ({
    file,
    lines: [...lines].map(([line, rest]) => ({ line, ...rest })).sort((a, b) => a.line - b.line),
  }));
}
