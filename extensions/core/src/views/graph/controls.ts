// The controls around the drawing: the bar above it, and the legend and the status line below it.

import { h } from "../../dom";
import { thousands } from "../../format";
import type { Mark } from "../../layout/marks";
import { explained } from "../../terms";
import { type ColourBy, type Colouring, propertyOf } from "./colouring";

/** The reader's settings for the drawing, kept across the stages. */
export interface Wishes {
  by: ColourBy;
  aliases: boolean;
  chain: boolean; // highlight all that a node depends on and all that depends on it, not only one step
  flat: boolean; // without groups
  outline: boolean;
  values: boolean; // the table of a painting's values
}

/** A setting that can change. */
export type Wish = Exclude<keyof Wishes, "values">;

export interface ControlActions {
  changed(what: Wish): void;
  everything(open: boolean): void;
  zoom(key: "+" | "-" | "0"): void;
}

export function bar(wishes: Wishes, chooser: HTMLElement, actions: ControlActions): HTMLElement {
  const toggle = (what: "aliases" | "chain" | "flat" | "outline", text: string, title: string): HTMLElement => {
    const button = h(
      "button",
      { type: "button", class: "small toggle", title, "aria-pressed": String(wishes[what]), data: { toggle: what } },
      text,
    );
    button.addEventListener("click", () => {
      wishes[what] = !wishes[what];
      button.setAttribute("aria-pressed", String(wishes[what]));
      actions.changed(what);
    });
    return button;
  };
  const button = (text: string, title: string, click: () => void): HTMLElement =>
    h("button", { type: "button", class: "small", title, "aria-label": title, on: { click } }, text);
  return h(
    "div",
    { class: "bar graph-bar", role: "toolbar", "aria-label": "Graph" },
    toggle("outline", "Outline", "Show the graph as a list beside the drawing"),
    chooser,
    toggle("aliases", "Aliases", "Draw which values share memory"),
    toggle(
      "chain",
      "Whole chain",
      "Highlight everything that the selected node depends on, and everything that depends on it",
    ),
    toggle("flat", "Flat", "Show the nodes without their modules"),
    h(
      "span",
      { class: "together" },
      button("Open all", "Open all modules", () => actions.everything(true)),
      button("Close all", "Close all modules", () => actions.everything(false)),
    ),
    h(
      "span",
      { class: "together" },
      button("−", "Zoom out", () => actions.zoom("-")),
      button("Fit", "Fit to the view", () => actions.zoom("0")),
      button("+", "Zoom in", () => actions.zoom("+")),
    ),
  );
}

const MEANING: Record<Mark, string> = {
  saved: "saves for the backward",
  gradients: "returns a gradient",
  returned: "returned",
  written: "in-place write",
  unread: "nothing reads it",
};

/** The legend of colours and lines; no meaning is shown by colour alone. */
export function legend(
  colouring: Colouring,
  has: { lanes: ReadonlySet<string>; across: boolean; alias: boolean; marks: readonly Mark[] },
): HTMLElement {
  const key = (kind: string, text: string, term = text): HTMLElement =>
    h("span", { class: "key", ...explained("colours", term) }, h("i", { class: kind, "aria-hidden": "true" }), text);
  const swatch = (colour: number, text: string, term: string): HTMLElement => {
    const element = key(colouring.ramp ? "swatch ramp" : "swatch", text, term);
    element.style.setProperty("--swatch", `var(--graph-${colouring.ramp ? "r" : "c"}-${colour})`);
    return element;
  };
  return h(
    "div",
    { class: "legend" },
    colouring.by === "direction"
      ? [has.lanes.size > 1 && [key("forward", "forward"), key("backward", "backward")]]
      : colouring.legend.map(({ text, colour, count }) =>
          swatch(colour, `${text} · ${thousands(count)}`, propertyOf(colouring)),
        ),
    colouring.by !== "direction" &&
      !colouring.legend.length &&
      h("span", { class: "none" }, "no node has this property"),
    has.marks.map((mark) => key(`mark ${mark}`, MEANING[mark])),
    has.across && key("line across", "forward value used by the backward"),
    has.alias && key("line alias", "shares memory"),
  );
}

/** A waiting notice with a cancel button that appears after some time. */
export function waiting(text: string, cancel: () => void, progress: HTMLElement | null = null): HTMLElement {
  return h(
    "div",
    { class: "notice loading", role: "status" },
    h("strong", {}, text),
    progress,
    h("button", { type: "button", class: "small", on: { click: cancel } }, "Cancel"),
  );
}

/** A sentence with buttons for what the reader can do. */
export function advice(
  kind: "empty" | "error",
  title: string,
  text: string,
  ...choices: [string, () => void][]
): HTMLElement {
  return h(
    "div",
    { class: `notice ${kind}`, role: kind === "error" ? "alert" : "status" },
    h("strong", {}, title),
    text && h("p", {}, text),
    h(
      "p",
      { class: "together" },
      choices.map(([name, click]) => h("button", { type: "button", class: "small", on: { click } }, name)),
    ),
  );
}
