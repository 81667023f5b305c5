// The help (`?`): what the words on the screen mean, a search among all words, and the keys.

import { h, quoted, replace, searchField } from "./dom";
import type { Host } from "./host";
import { search, type Term, TERMS } from "./terms";

const MOST_FOUND = 40;

export interface Help {
  readonly element: HTMLElement;
  readonly isOpen: boolean;
  /** Opens it with the words on the screen, or with one word. */
  open(word?: string): void;
  close(): void;
  /** Handles a key while it is open. */
  key(event: KeyboardEvent): void;
}

export function helpDialog(
  body: HTMLElement,
  keys: readonly (readonly [string, string])[],
  tour: () => void,
  later: Host["editor"],
): Help {
  const root = (): Document | ShadowRoot => body.getRootNode() as Document | ShadowRoot;
  const close = h("button", { type: "button", class: "small", on: { click: () => show(false) } }, "Close");
  const input = searchField("Find a word: donated, tangent, Split …", "Find a word");
  const start = h(
    "button",
    {
      type: "button",
      class: "small help-tour",
      on: {
        click: () => {
          show(false);
          tour();
        },
      },
    },
    "A tour through this recording",
  );
  const words = h("div", { class: "help-words", "aria-live": "polite" });
  const scroller = h(
    "div",
    { class: "help-text", tabindex: "0", role: "group", "aria-label": "Words and keys" },
    words,
    h("h3", {}, "Keys"),
    h(
      "dl",
      { class: "help-keys" },
      keys.map(([names, what]) => [
        h(
          "dt",
          {},
          names.split(" ").map((key) => (key === "…" ? " … " : h("kbd", {}, key))),
        ),
        h("dd", {}, what),
      ]),
    ),
  );
  const element = h(
    "div",
    { class: "help", role: "dialog", "aria-modal": "true", "aria-label": "What is this?", hidden: true },
    h("div", { class: "help-card" }, h("header", {}, h("h2", {}, "What is this?"), input, start, close), scroller),
  );
  let from: Element | null = null; // had the focus before

  const list = (): void => {
    const query = input.value.trim();
    const found = query ? search(query) : onScreen(body);
    const title = query ? "" : "On the screen now";
    replace(
      words,
      title && found.length > 0 && h("h3", {}, title),
      h(
        "dl",
        {},
        found.slice(0, MOST_FOUND).map((term) => entry(term, later)),
      ),
      !found.length && h("p", { class: "muted" }, query ? "No word matches." : ""),
      found.length > MOST_FOUND && h("p", { class: "muted" }, `and ${found.length - MOST_FOUND} more`),
    );
    scroller.scrollTop = 0;
  };
  const show = (on: boolean, word = ""): void => {
    if (on) {
      if (element.hidden) from = root().activeElement;
      element.hidden = false;
      input.value = word;
      list();
      input.focus({ preventScroll: true });
    } else if (!element.hidden) {
      element.hidden = true;
      (from instanceof HTMLElement ? from : body).focus({ preventScroll: true });
    }
  };
  input.addEventListener("input", list);
  element.addEventListener("click", ({ target }) => target === element && show(false));
  return {
    element,
    get isOpen() {
      return !element.hidden;
    },
    open: (word) => show(true, word),
    close: () => show(false),
    key(event) {
      const stops: readonly HTMLElement[] = [input, start, close, scroller];
      const at = stops.indexOf(root().activeElement as HTMLElement);
      if (event.key === "Tab") stops[(at + (event.shiftKey ? stops.length - 1 : 1)) % stops.length]!.focus();
      else if (event.key === "Escape" || (event.key === "?" && at !== 0)) show(false);
      else return;
      event.preventDefault();
    },
  };
}

function entry({ id, group, name, kind, text }: Term, later: Host["editor"]): HTMLElement[] {
  const said = h("dd", {}, h("p", {}, quoted(text)));
  if (group === "stages")
    later().then(
      ({ programs }) => {
        const [before, after] = programs[id] ?? [];
        if (before !== undefined && after !== undefined) said.append(example(before, after));
      },
      () => undefined, // then the sentences have to do
    );
  return [h("dt", {}, h("b", {}, name), " ", h("span", { class: "faint" }, kind)), said];
}

function example(before: string, after: string): HTMLElement {
  return h(
    "div",
    { class: "help-example" },
    h("figure", {}, h("figcaption", {}, "before"), h("pre", {}, before)),
    h("figure", {}, h("figcaption", {}, "after"), h("pre", {}, after)),
  );
}

/** The terms of the elements that are shown: the open stage first, then those of the view, then the others. */
function onScreen(body: HTMLElement): Term[] {
  const marked = [".stage-head", ".panel", ".tabs, .head, .rail, .facts"].flatMap((places) =>
    [...body.querySelectorAll<HTMLElement>(`:is(${places}) [data-term]`)].filter((element) =>
      element.checkVisibility(),
    ),
  );
  const ids = [...new Set(marked.map(({ dataset }) => dataset["term"]))];
  return ids.flatMap((id) => TERMS.find((term) => term.id === id) ?? []);
}
