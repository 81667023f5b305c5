// The search field of the graph: it lists the results while the reader types, steps through them, and jumps on Enter.

import { h, keepInView, replace } from "../../dom";
import * as format from "../../format";
import type { Graph } from "../../graph";
import type { State } from "../../state";
import { nodeTitle, operator } from "./labels";
import { SearchIndex } from "./search";

const MOST = 200; // results in the list
const HINT = "Search for words, or use op: name: shape: dtype: line: module:";

export interface SearchBox {
  readonly element: HTMLElement;
  focus(): void;
  update(): void; // after the graph or the selection changed
}

/** `found` is called with the matches, and with an empty list when the search ends. */
export function searchBox(state: State, found: (nodes: readonly number[]) => void): SearchBox {
  let index: SearchIndex | null = null;
  let graph: Graph | null = null;
  let nodes: number[] = [];
  let cursor = -1; // in the list
  const count = h("output", { "aria-live": "polite" });
  const list = h("ul", {
    class: "results",
    role: "listbox",
    id: "aot-results",
    "aria-label": "Nodes found",
    hidden: true,
  });
  const input = h("input", {
    type: "search",
    placeholder: "Search nodes",
    title: HINT,
    "aria-label": `Search the graph. ${HINT}`,
    spellcheck: "false",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "aot-results",
    "aria-autocomplete": "list",
  });
  const button = (text: string, title: string, step: 1 | -1): HTMLButtonElement =>
    h(
      "button",
      { type: "button", class: "small", title, "aria-label": title, disabled: true, on: { click: () => go(step) } },
      text,
    );
  const previous = button("‹", "Previous result", -1);
  const next = button("›", "Next result", 1);

  const open = (shown: boolean): void => {
    list.hidden = !shown;
    input.setAttribute("aria-expanded", String(shown));
    if (!shown) cursor = -1;
    mark();
  };
  const mark = (): void => {
    list.querySelectorAll('[aria-selected="true"]').forEach((row) => row.setAttribute("aria-selected", "false"));
    const row = cursor >= 0 ? list.children[cursor] : undefined;
    row?.setAttribute("aria-selected", "true");
    if (row) keepInView(list, row);
    if (row) input.setAttribute("aria-activedescendant", row.id);
    else input.removeAttribute("aria-activedescendant");
  };
  const tell = (): void => {
    const at = nodes.indexOf(state.selection.node);
    count.textContent = !input.value.trim()
      ? ""
      : !nodes.length
        ? "none"
        : at < 0
          ? format.plural(nodes.length, "result")
          : `${at + 1} of ${nodes.length}`;
    previous.disabled = next.disabled = !nodes.length;
  };
  const run = (): void => {
    if (graph && !index) index = new SearchIndex(state, graph);
    nodes = index?.find(input.value) ?? [];
    cursor = -1;
    replace(
      list,
      nodes.slice(0, MOST).map((node, i) => row(node, i)),
      nodes.length > MOST &&
        h(
          "li",
          { class: "more", role: "presentation" },
          `and ${format.plural(nodes.length - MOST, "more result")}: add a word to narrow the search`,
        ),
      !nodes.length &&
        h(
          "li",
          { class: "more", role: "presentation" },
          "No node matches. Try a part of a name, op:mm, shape:[8, 64], line:model.py:12.",
        ),
    );
    tell();
    found(input.value.trim() ? nodes : []);
  };
  const row = (index: number, i: number): HTMLElement => {
    const node = graph!.nodes[index]!;
    const type = format.value(state.recording, node.value, state.compilation.values);
    const where =
      (node.op === "p" ? nodeTitle(node) : node.modules[node.modules.length - 1]?.path) ||
      (node.source ? format.place(node.source.file, node.source.line) : "");
    return h(
      "li",
      {
        role: "option",
        id: `aot-result-${i}`,
        "aria-selected": "false",
        on: {
          mousedown: (event: MouseEvent) => {
            event.preventDefault();
            pick(index);
          },
        },
      },
      h("b", {}, node.name),
      h("span", {}, node.op === "p" ? "input" : operator(node.target)),
      h("span", {}, type),
      h("span", { class: "where", title: where }, h("bdi", {}, where)),
    );
  };
  const pick = (node: number): void => {
    open(false);
    state.openNode(node);
    tell();
  };
  const go = (step: 1 | -1): void => {
    if (!nodes.length) return;
    const here = state.selection.node;
    const exact = nodes.includes(here) ? -1 : index!.named(input.value, nodes);
    if (exact >= 0) return pick(exact);
    const target =
      step > 0
        ? (nodes.find((node) => node > here) ?? nodes[0]!)
        : (nodes.findLast((node) => node < here) ?? nodes[nodes.length - 1]!);
    pick(target);
  };
  input.addEventListener("input", () => {
    run();
    open(input.value.trim() !== "");
  });
  input.addEventListener("focus", () => nodes.length > 0 && open(true));
  input.addEventListener("blur", () => open(false));
  input.addEventListener("keydown", (event) => {
    const shown = Math.min(nodes.length, MOST);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) open(true);
      cursor = shown ? (cursor + (event.key === "ArrowDown" ? 1 : shown + (cursor < 0 ? 0 : -1))) % shown : -1;
      mark();
    } else if (event.key === "Enter") {
      if (cursor >= 0) pick(nodes[cursor]!);
      else go(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape" && input.value) {
      input.value = "";
      run();
      open(false);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return {
    element: h("div", { class: "graph-search" }, input, count, previous, next, list),
    focus: () => input.focus(),
    update() {
      if (graph !== state.graph) {
        graph = state.graph;
        index = null;
        if (input.value.trim()) run();
      }
      tell();
    },
  };
}
