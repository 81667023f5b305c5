// The search box in the head of the workbench. It lists what it finds (hits.ts) while the reader types. Enter goes to
// the next node of the open graph if the list begins with these, and else to the first hit; ↓ chooses another hit.

import { h, keepInView, replace } from "../dom";
import * as format from "../format";
import type { State } from "../state";
import { type Hit, type HitGroup, hitsOf, openNode } from "./hits";
import type { Search } from "./search";

const FIELDS = "op: name: shape: dtype: line: module:";

export interface SearchBox {
  readonly element: HTMLElement;
  focus(): void;
  update(): void; // after the selection changed
}

/** `explain` opens the help at a word. */
export function searchBox(state: State, search: Search, explain: (word: string) => void): SearchBox {
  let groups: readonly HitGroup[] = [];
  let hits: readonly Hit[] = []; // that are listed
  let rows: readonly HTMLElement[] = []; // one per hit
  let cursor = -1; // in the list
  let seen: unknown[] = []; // what the list was made of
  const count = h("output", { "aria-live": "polite" });
  const options = h("div", { role: "listbox", id: "aot-results", "aria-label": "Found" });
  const note = h("p", { class: "more" });
  const results = h("div", { class: "results", hidden: true }, options, note);
  const input = h("input", {
    type: "search",
    placeholder: "Search   /",
    title: `Search nodes, lines, stages, inputs, outputs and words (/ or Ctrl F). Of a node also ${FIELDS}`,
    "aria-label": "Search the recording",
    spellcheck: "false",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "aot-results",
    "aria-autocomplete": "list",
  });
  const button = (text: string, title: string, step: 1 | -1): HTMLButtonElement =>
    h(
      "button",
      { type: "button", class: "small", title, "aria-label": title, hidden: true, on: { click: () => go(step) } },
      text,
    );
  const previous = button("‹", "Previous node found", -1);
  const next = button("›", "Next node found", 1);

  const open = (shown: boolean): void => {
    results.hidden = !shown;
    input.setAttribute("aria-expanded", String(shown));
    if (shown) {
      const body = input.closest(".workbench");
      const room = (body?.getBoundingClientRect().bottom ?? 0) - results.getBoundingClientRect().top;
      results.style.maxHeight = `${Math.max(120, Math.min(440, room - 12))}px`;
    }
    choose(-1);
  };
  const choose = (to: number): void => {
    rows[cursor]?.setAttribute("aria-selected", "false");
    cursor = to;
    const row = rows[cursor];
    row?.setAttribute("aria-selected", "true");
    if (row) keepInView(results, row);
    if (row) input.setAttribute("aria-activedescendant", row.id);
    else input.removeAttribute("aria-activedescendant");
  };
  const tell = (): void => {
    const { nodes } = search;
    const at = nodes.indexOf(state.selection.node);
    const all = groups.reduce((sum, group) => sum + group.count, 0);
    count.textContent = !search.text.trim()
      ? ""
      : at >= 0
        ? `${at + 1} of ${nodes.length}`
        : all
          ? format.plural(all, "result")
          : "none";
    previous.hidden = next.hidden = !nodes.length;
  };
  const run = (): void => {
    groups = hitsOf(state, search, explain);
    hits = groups.flatMap((group) => group.hits);
    rows = hits.map(row);
    let at = 0;
    replace(
      options,
      groups.map((group) =>
        h(
          "div",
          { role: "group", "aria-label": group.title },
          h(
            "div",
            { class: "group-title", "aria-hidden": "true" },
            `${group.title} · ${format.thousands(group.count)}`,
          ),
          group.hits.map(() => rows[at++]!),
        ),
      ),
    );
    note.textContent = !groups.length
      ? "Nothing matches. Try a part of a name, op:mm, shape:[8, 64] or line:model.py:12."
      : groups.some((group) => group.count > group.hits.length)
        ? "Add a word to narrow the search."
        : "";
    cursor = -1;
  };
  const row = (found: Hit, i: number): HTMLElement =>
    h(
      "div",
      {
        role: "option",
        id: `aot-result-${i}`,
        "aria-selected": "false",
        on: {
          mousedown: (event: MouseEvent) => {
            event.preventDefault(); // the field keeps the focus, for the next hit
            pick(found);
          },
        },
      },
      h("b", {}, found.label),
      found.details.map((text, column) =>
        column === 2 ? h("span", { class: "where", title: text }, h("bdi", {}, text)) : h("span", {}, text),
      ),
    );
  const pick = (found: Hit): void => {
    open(false);
    found.open();
    tell();
  };
  const go = (step: 1 | -1): void => {
    const { nodes } = search;
    const here = state.selection.node;
    if (!nodes.length || (!results.hidden && !groups[0]?.steps)) return hits[0] && pick(hits[0]);
    const exact = nodes.includes(here) ? -1 : search.exact;
    const target =
      exact >= 0
        ? exact
        : step > 0
          ? (nodes.find((node) => node > here) ?? nodes[0]!)
          : (nodes.findLast((node) => node < here) ?? nodes[nodes.length - 1]!);
    open(false);
    openNode(state, target);
    tell();
  };
  const made = (): unknown[] => [search.text, state.graph, state.compilation.stages, state.recording.index];
  const refresh = (): void => {
    const now = made();
    if (search.text.trim() && now.some((part, i) => part !== seen[i])) run();
    seen = now;
    tell();
  };
  search.subscribe(() => {
    if (input.value !== search.text) input.value = search.text;
    groups = hits = rows = [];
    refresh();
  });
  input.addEventListener("input", () => {
    search.set(input.value);
    open(search.text.trim() !== "");
  });
  input.addEventListener("blur", () => open(false));
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      if (results.hidden && search.text.trim()) open(true);
      if (hits.length) choose((cursor + step + (cursor < 0 && step < 0 ? 1 : 0) + hits.length) % hits.length);
    } else if (event.key === "Enter") {
      if (cursor >= 0) pick(hits[cursor]!);
      else go(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape" && !results.hidden) open(false);
    else {
      if (event.key === "Escape") search.set(""); // and the workbench takes the focus
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  });
  return {
    element: h("div", { class: "find", role: "search" }, count, previous, next, input, results),
    focus() {
      input.focus({ preventScroll: true });
      input.select();
    },
    update: refresh,
  };
}
