// The keys of the whole workbench, and the help that lists them (`?`). A view that handles a key itself prevents its
// default or stops it. In a text field or an editor, this file handles only Escape and the help key.

import { h } from "./dom";
import type { State } from "./state";
import { VIEWS, viewsOf } from "./views/registry";
import type { Rail } from "./views/stages";

const KEYS: readonly (readonly [string, string])[] = [
  ["← →", "previous and next stage"],
  ["↑ ↓ Home End", "previous, next, first and last stage, in the list of stages"],
  ["p", "play: go through the stages automatically"],
  ["1 … 9", "the views, in the order of their tabs"],
  ["/", "find a node; Enter goes to the next result"],
  ["r", "the next graph of the stage: forward, backward"],
  ["n N", "next and previous node"],
  ["Esc", "clear the selected node, or close this list"],
  ["?", "this list"],
];
const WRITES = "input:not([type=checkbox]), textarea, select, [contenteditable=true], .cm-editor";
// Elements in which the arrow keys move something.
const OWN_ARROWS = "[role=tab], [role=radio], [role=tree], [role=treeitem], [role=grid], .canvas";

export interface Keyboard {
  readonly help: HTMLElement;
  readonly button: HTMLElement;
}

export function keyboard(body: HTMLElement, state: State, rail: Rail, finder: HTMLElement): Keyboard {
  const close = h("button", { type: "button", class: "small", on: { click: () => show(false) } }, "Close");
  const help = h(
    "div",
    { class: "help", role: "dialog", "aria-modal": "true", "aria-label": "Keys", hidden: true },
    h(
      "div",
      { class: "help-card" },
      h("h2", {}, "Keys"),
      h(
        "dl",
        {},
        KEYS.map(([keys, what]) => [
          h(
            "dt",
            {},
            keys.split(" ").map((key) => (key === "…" ? " … " : h("kbd", {}, key))),
          ),
          h("dd", {}, what),
        ]),
      ),
      close,
    ),
  );
  const button = h(
    "button",
    {
      type: "button",
      class: "small help-button",
      title: "Keys (?)",
      "aria-label": "Keys",
      on: { click: () => show(true) },
    },
    "?",
  );
  const active = (): Element | null => (body.getRootNode() as ShadowRoot | Document).activeElement;
  let from: Element | null = null;
  const show = (on: boolean): void => {
    if (on === !help.hidden) return;
    if (on) from = active();
    help.hidden = !on;
    if (on) close.focus();
    else if (from instanceof HTMLElement) from.focus();
  };
  help.addEventListener("click", (event) => {
    if (event.target === help) show(false);
  });
  const nextRole = (): void => {
    const roles = [...(state.stage?.graphs.keys() ?? [])];
    const next = roles[(roles.indexOf(state.selection.role) + 1) % roles.length];
    if (next !== undefined) state.openRole(next);
  };
  const nextNode = (by: number): void => {
    const count = state.graph?.nodes.length ?? 0;
    if (count) state.openNode(Math.max(0, Math.min(count - 1, state.selection.node + by)));
  };
  const openTab = (i: number): void => {
    const view = viewsOf(state)[i];
    if (view) state.openView(view.id);
  };
  const actions: Record<string, () => void> = {
    ArrowLeft: () => rail.step(-1),
    ArrowRight: () => rail.step(1),
    p: rail.play,
    r: nextRole,
    n: () => nextNode(1),
    N: () => nextNode(-1),
    "/": () => finder.querySelector("input")?.focus(),
    "?": () => show(true),
    ...Object.fromEntries(VIEWS.slice(0, 9).map((_, i) => [String(i + 1), () => openTab(i)])),
  };
  body.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.composedPath()[0] as Element;
    if (!help.hidden) {
      if (event.key === "Escape" || event.key === "?") show(false);
      else if (event.key !== "Tab" && event.key !== "Enter" && event.key !== " ") return;
      if (event.key === "Tab") close.focus(); // the only control
      if (event.key !== "Enter" && event.key !== " ") event.preventDefault();
      return;
    }
    if (event.key === "Escape") {
      if (target.matches(WRITES)) body.focus({ preventScroll: true });
      else if (state.selection.node >= 0) state.openNode(-1);
      return;
    }
    if (target.closest(WRITES) || (event.key.startsWith("Arrow") && target.closest(OWN_ARROWS))) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
  body.tabIndex = -1; // so that a click anywhere gives the workbench the focus
  return { help, button };
}
