// Finds a node by a part of its name, target or module. The browser's own search cannot find lines that the editor has
// not drawn, or nodes in a closed module.

import { h, searchField } from "../dom";
import type { Node } from "../graph";
import type { State } from "../state";

export function find(state: State): HTMLElement {
  const count = h("output", { "aria-live": "polite" });
  const input = searchField("Find a node", "Find a node; Enter goes to the next");
  const matches = (): number[] => {
    const text = input.value.trim().toLowerCase();
    if (!text || !state.graph) return [];
    return state.graph.nodes.filter((node) => haystack(node).includes(text)).map((node) => node.index);
  };
  const show = (found: readonly number[]): void => {
    const at = found.indexOf(state.selection.node);
    count.textContent = !input.value.trim()
      ? ""
      : !found.length
        ? "none"
        : at < 0
          ? String(found.length)
          : `${at + 1} of ${found.length}`;
  };
  input.addEventListener("input", () => show(matches()));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const found = matches();
    const here = state.selection.node;
    const next = event.shiftKey
      ? (found.findLast((index) => index < here) ?? found.at(-1))
      : (found.find((index) => index > here) ?? found[0]);
    if (next === undefined) return;
    if (!["code", "graph"].includes(state.selection.view)) state.openView("code");
    state.openNode(next);
    show(found);
  });
  return h("label", { class: "find" }, count, input);
}

function haystack(node: Node): string {
  const module = node.modules[node.modules.length - 1];
  return `${node.name} ${node.target} ${module?.path ?? ""} ${module?.type ?? ""} ${node.descriptor}`.toLowerCase();
}
