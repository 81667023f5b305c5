// The diff node by node: added, removed and changed nodes.

import { called } from "../../called";
import { call } from "../../code/python";
import { type Change, diffNodes, type NodeChange } from "../../code/nodes";
import { type Child, h, notice } from "../../dom";
import * as format from "../../format";
import type { Graph, Node } from "../../graph";
import type { State } from "../../state";
import type { CompilationData } from "../../wire";
import { chip, codeText, table } from "../table";

const KINDS: { readonly [change in Change]: string } = {
  same: "",
  changed: "warn",
  added: "added",
  removed: "removed",
};
const found = new WeakMap<Graph, WeakMap<Graph, NodeChange[]>>();

/** `other` is the compilation of `before`, if it is not the open one. */
export function nodeTable(state: State, before: Graph, after: Graph, other: CompilationData | null): HTMLElement {
  let pairs = found.get(before);
  if (!pairs) found.set(before, (pairs = new WeakMap()));
  let rows = pairs.get(after);
  if (!rows) pairs.set(after, (rows = diffNodes(state.recording, before, after, !other)));
  const count = (change: Change): number => rows.filter((row) => row.change === change).length;
  const differing = rows.filter(({ change }) => change !== "same");
  const summary = h(
    "p",
    { class: "lead" },
    chip(`+${count("added")}`, "added"),
    chip(`−${count("removed")}`, "removed"),
    chip(`${count("changed")} changed`, "warn"),
    chip(`${count("same")} the same`),
  );
  if (!differing.length)
    return h(
      "div",
      { class: "page" },
      summary,
      notice("empty", "Every node is the same.", "Only the order of the nodes may differ."),
    );
  const text = (node: Node, graph: Graph): string =>
    node.op === "p" ? node.descriptor || "input" : node.op === "o" ? "output" : call(node, graph, state.recording);
  const type = (node: Node | null): string => (node?.value ? format.value(state.recording, node.value, []) : "");
  return h(
    "div",
    { class: "page" },
    summary,
    table(
      "Nodes that differ",
      [
        {
          title: "Change",
          kind: "flags",
          cell: ({ change, differs }) => [
            chip(change, KINDS[change]),
            differs.length > 0 && h("small", {}, differs.join(", ")),
          ],
        },
        {
          title: other ? called(other) : "Before",
          term: "Before",
          kind: "code",
          cell: (row) => side(row.before, row.before && text(row.before, before), type(row.before)),
        },
        {
          title: other ? called(state.compilation) : "After",
          term: "After",
          kind: "code",
          cell: (row) => side(row.after, row.after && text(row.after, after), type(row.after)),
        },
      ],
      differing,
      {
        onRow: (row) => state.openNode(row.after?.index ?? -1),
        selected: (row) => row.after !== null && row.after.index === state.selection.node,
      },
    ),
  );
}

function side(node: Node | null, text: string | null, type: string): Child {
  return (
    node && [
      codeText(node.name + (type && `: ${type}`)),
      text && h("small", {}, text.length > 300 ? `${text.slice(0, 300)} …` : text),
    ]
  );
}
