// Views create elements only with these functions. Strings become text nodes, never markup, so that a name from a
// recording is always plain text.

export type Child = Element | string | number | null | undefined | false | Child[];

type Properties = {
  class?: string | undefined;
  title?: string | undefined;
  on?: { [event: string]: (event: never) => void };
  data?: { [name: string]: string };
  [attribute: string]: unknown;
};

const SVG = "http://www.w3.org/2000/svg";

function fill(element: Element, properties: Properties, children: Child[]): void {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === false || value === null) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value as object))
        element.addEventListener(event, handler as EventListener);
    } else if (name === "data") {
      for (const [key, text] of Object.entries(value as object)) element.setAttribute(`data-${key}`, String(text));
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
}

export function append(parent: Element | DocumentFragment, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.append(typeof child === "number" ? String(child) : child);
  }
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, properties, children);
  return element;
}

/** A field in which one types what to look for. `label` is for screen readers. */
export function searchField(placeholder: string, label: string): HTMLInputElement {
  return h("input", { type: "search", placeholder, "aria-label": label, spellcheck: "false" });
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  fill(element, properties, children);
  return element;
}

export function replace(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

/** An empty, loading or error state: what happened, and what to do. */
export function notice(
  kind: "empty" | "loading" | "error",
  title: string,
  advice = "",
  ...actions: Child[]
): HTMLElement {
  return h(
    "div",
    { class: `notice ${kind}`, role: kind === "error" ? "alert" : "status" },
    h("strong", {}, quoted(title)),
    advice && h("p", {}, quoted(advice)),
    actions,
  );
}

/** Scrolls `scroller` only: scrollIntoView would move the notebook as well. */
export function keepInView(scroller: Element, element: Element): void {
  const [outer, inner] = [scroller.getBoundingClientRect(), element.getBoundingClientRect()];
  if (inner.top < outer.top) scroller.scrollTop -= outer.top - inner.top;
  else if (inner.bottom > outer.bottom)
    scroller.scrollTop += Math.min(inner.bottom - outer.bottom, inner.top - outer.top);
  if (inner.width > outer.width) return; // a long row stays at its beginning
  if (inner.left < outer.left) scroller.scrollLeft -= outer.left - inner.left;
  else if (inner.right > outer.right) scroller.scrollLeft += inner.right - outer.right;
}

/** The same for all that the element is in, up to `within`, and that included. */
export function bring(element: Element, within: Element): void {
  for (let scroller = element.parentElement; scroller; scroller = scroller.parentElement) {
    if (scroller.scrollHeight > scroller.clientHeight && /auto|scroll/.test(getComputedStyle(scroller).overflowY))
      keepInView(scroller, element);
    if (scroller === within) break;
  }
}

const CODE = /`([^`]*)`/;

/** A sentence in which `code` in backticks becomes a code element. Use it for every sentence of a recording. */
export function quoted(text: string): Child {
  const parts = text.split(CODE);
  return parts.length > 1 ? parts.map((part, i) => (i % 2 ? h("code", {}, part) : part)) : text;
}

/** The same sentence for a place that shows plain text, such as a tooltip: without the backticks. */
export function unquoted(text: string): string {
  return text.replace(new RegExp(CODE, "g"), "$1");
}
