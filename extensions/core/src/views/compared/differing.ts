// In which lines several texts differ, and in which nodes several graphs do. These are pure functions on data.

import { diffLines } from "../../code/diff";
import * as format from "../../format";
import type { Graph } from "../../graph";
import type { Recording } from "../../model";
import type { CompilationData } from "../../wire";
import { nodeTitle } from "../graph/labels";

/** For each text, the lines that at least one of the other texts does not have there. */
export function differingLines(texts: readonly (readonly string[])[]): ReadonlySet<number>[] {
  const lit = texts.map(() => new Set<number>());
  texts.forEach((a, i) => {
    for (let j = i + 1; j < texts.length; j++) {
      for (const { fromA, toA, fromB, toB } of diffLines(a, texts[j]!)) {
        for (let line = fromA; line < toA; line++) lit[i]!.add(line);
        for (let line = fromB; line < toB; line++) lit[j]!.add(line);
      }
    }
  });
  return lit;
}

/** What each node is, in words that do not depend on the names of other nodes: operator, type and what it reads. */
export function nodeLines(recording: Recording, compilation: CompilationData, graph: Graph): string[] {
  const titles = graph.nodes.map((node) => nodeTitle(node));
  return graph.nodes.map((node, i) => {
    const type = format.value(recording, node.value, compilation.values);
    return `${titles[i]} ${type} <- ${node.inputs.map((input) => titles[input]).join(", ")}`;
  });
}
