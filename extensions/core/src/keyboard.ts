// The keys of the whole workbench, which the help (`?`) lists. A view that handles a key itself prevents its
// default or stops it. In a text field, this file handles only Escape. Code is no text field: it is only read.

import { h } from "./dom";
import { type Help, helpDialog } from "./help";
import type { SearchBox } from "./search";
import type { Tour } from "./tour";
import { VIEWS, viewsOf } from "./views/registry";
import type { Context } from "./views/view";
import type { Rail } from "./views/stages";

const KEYS: readonly (readonly [string, string])[] = [
  ["← →", "previous and next stage; on a tab, a choice or the drawing: they move there"],
  ["↑ ↓ Home End", "previous, next, first and last: stage in the list of stages, line in code"],
  ["Shift ← →", "code: scroll sideways"],
  ["p", "play: go through the stages automatically"],
  ["1 … 9", "the views, in the order of their tabs"],
  ["/ Ctrl+F", "search nodes, lines, stages, inputs, outputs and words; Enter goes to the next result"],
  ["r", "the next graph of the stage: forward, backward"],
  ["n N", "next and previous node"],
  ["Esc", "clear the selected node, or close this window"],
  ["?", "what the words on the screen mean, and this list"],
];
const WRITES = "input:not([type=checkbox]), textarea, select, [contenteditable=true]";
// Elements in which the arrow keys move something.
const OWN_ARROWS = "[role=tab], [role=tree], [role=treeitem], [role=grid], .canvas";

export interface Keyboard {
  readonly help: Help;
  readonly button: HTMLElement;
}

export function keyboard(
  body: HTMLElement,
  { state, host }: Context,
  rail: Rail,
  finder: SearchBox,
  tour: Tour,
): Keyboard {
  const help = helpDialog(body, KEYS, tour.start, () => host.editor());
  const button = h(
    "button",
    {
      type: "button",
      class: "small help-button",
      title: "What is this? Words and keys (?)",
      "aria-label": "What is this?",
      on: { click: () => help.open() },
    },
    "?",
  );
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
    "/": finder.focus,
    "?": () => help.open(),
    ...Object.fromEntries(VIEWS.slice(0, 9).map((_, i) => [String(i + 1), () => openTab(i)])),
  };
  body.addEventListener("keydown", (event) => {
    const target = event.composedPath()[0] as Element;
    // A second Ctrl+F is the browser's own search.
    const finds = event.key === "f" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (finds && !event.defaultPrevented && !help.isOpen && !finder.element.contains(target)) {
      event.preventDefault();
      event.stopPropagation();
      return finder.focus();
    }
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (help.isOpen) return help.key(event);
    if (!target.matches(WRITES) && !ownArrows(event, target) && tour.key(event)) return;
    if (event.key === "Escape") {
      if (target.matches(WRITES)) body.focus({ preventScroll: true });
      else if (state.selection.node >= 0) state.openNode(-1);
      return;
    }
    if (target.closest(WRITES) || ownArrows(event, target)) return;
    const choose = otherRadio(target, { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key] ?? 0);
    const action = choose ?? actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
  body.tabIndex = -1; // so that a click anywhere gives the workbench the focus
  keepFocus(body);
  return { help, button };
}

function ownArrows({ key }: KeyboardEvent, target: Element): boolean {
  return key.startsWith("Arrow") && target.closest(OWN_ARROWS) !== null;
}

/** Chooses the neighbour of a radio button, and gives it the focus even if the choice is drawn again; else null. */
function otherRadio(target: Element, by: number): (() => void) | null {
  const group = by ? target.closest("[role=radiogroup]") : null;
  if (!group || !target.matches("[role=radio]")) return null;
  const root = target.getRootNode() as ShadowRoot | Document;
  const radiosOf = (one: Element | null): HTMLElement[] => [
    ...(one?.querySelectorAll<HTMLElement>("[role=radio]") ?? []),
  ];
  const radios = radiosOf(group);
  const next = (radios.indexOf(target as HTMLElement) + by + radios.length) % radios.length;
  return () => {
    radios[next]!.click();
    const drawn = root.querySelector(`[role=radiogroup][aria-label="${CSS.escape(group.ariaLabel ?? "")}"]`);
    radiosOf(drawn)[next]?.focus({ preventScroll: true });
  };
}

/** If the element with the focus is drawn again, the workbench gets the focus; otherwise its keys would do nothing. */
function keepFocus(body: HTMLElement): void {
  const root = body.getRootNode() as ShadowRoot | Document;
  let inside: Element | null = null; // has the focus, or had it when it was removed
  body.addEventListener("focusin", ({ target }) => (inside = target as Element));
  body.addEventListener("focusout", ({ target }) =>
    queueMicrotask(() => {
      if (inside === target && inside?.isConnected && !root.activeElement) inside = null;
    }),
  );
  new MutationObserver(() => {
    if (!inside || inside.isConnected) return;
    inside = null;
    if (!root.activeElement && document.activeElement === document.body) body.focus({ preventScroll: true });
  }).observe(body, { childList: true, subtree: true });
}
