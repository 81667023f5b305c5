// What a graph does with its values beyond computing them: which it returns, which it writes in place, and which it
// never reads. The drawing marks these, and the outline says them in words.

import { type Graph, type Node, referred } from "../graph";
import { isGradient, isSaved, written } from "../descriptors";

/** The nodes of a graph by what becomes of them. A node can be in several sets: an output may be saved too. */
export interface Marks {
  readonly saved: ReadonlySet<number>; // for the backward
  readonly outputs: ReadonlySet<number>; // for the caller, including gradients and the new values of inputs
  readonly gradients: ReadonlySet<number>;
  readonly returned: ReadonlySet<number>; // outputs that are results
  readonly written: ReadonlySet<number>; // inputs that change, what writes them, and operators that write in place
  readonly unread: ReadonlySet<number>; // no node reads it, and it writes nothing
}

export const MARKS = ["saved", "gradients", "returned", "written", "unread"] as const;
export type Mark = (typeof MARKS)[number];

/** `lanes`: 1 for a node in the backward, which identifies a gradient without a descriptor. */
export function marksOf(graph: Graph, lanes: Uint8Array | null = null): Marks {
  const { nodes, inputs } = graph;
  const [saved, outputs, gradients, returned, changed] = Array.from({ length: 5 }, () => new Set<number>());
  const targets = new Set<string>(); // descriptors of inputs that change
  const give = (node: number, meaning: string): void => {
    outputs!.add(node);
    const target = written(meaning);
    if (target) {
      targets.add(target);
      changed!.add(node);
    } else if (meaning ? isGradient(meaning) : lanes?.[node]) gradients!.add(node);
    else returned!.add(node);
  };
  const output = nodes[nodes.length - 1];
  if (output?.op === "o") {
    const list = output.args[0];
    if (Array.isArray(list)) {
      list.slice(list[0] === "L" ? 1 : 0).forEach((arg, i) => {
        const [node, meaning] = [referred(arg, output.index), graph.outputDescriptors[i] ?? ""];
        if (node >= 0 && isSaved(meaning)) saved!.add(node);
        else if (node >= 0) give(node, meaning);
      });
    }
    // Directly, or in a nested list.
    for (const node of output.inputs) if (!saved!.has(node) && !outputs!.has(node)) give(node, "");
  }
  const isRead = new Uint8Array(nodes.length);
  for (let i = 0; i < inputs.all.length; i++) isRead[inputs.all[i]!] = 1;
  const { op } = graph.snapshot;
  const unread = new Set<number>();
  for (let i = 0; i < nodes.length; i++) {
    if (op[i] === "p" && targets.has(nodes[i]!.descriptor)) changed!.add(i);
    else if ("fc".includes(op[i]!) && writesInPlace(nodes[i]!)) changed!.add(i);
    if (!isRead[i] && op[i] !== "o" && !changed!.has(i)) unread.add(i);
  }
  return {
    saved: saved!,
    outputs: outputs!,
    gradients: gradients!,
    returned: returned!,
    written: changed!,
    unread,
  };
}

/** Whether an operator writes to an argument: torch's names for these end in one underscore. */
export function writesInPlace({ target }: Node): boolean {
  const parts = target.split(".");
  const name = /^(torch\.ops\.)?\w+\.\w+\.\w+$/.test(target) ? parts[parts.length - 2]! : parts[parts.length - 1]!;
  return /[^_]_$/.test(name) || /^_?operator\.(setitem|i(?!nv|s_|nd)\w+)$/.test(target);
}
