// Shows a captured backward: autograd's nodes in the order in which eager runs them, what each became in the captured
// graph, where hooks run, what waits for what, and after which node an input is freed.

import { type Child, h, replace } from "../../dom";
import { plural } from "../../format";
import type { State } from "../../state";
import type { CompilationData, VisitRecord } from "../../wire";
import type { LaterMount, Tools } from "../mounted";
import styles from "../../styles/backward.css";
import { arcs } from "./arcs";
import { type Relation, relation } from "./relation";

const GRAPH_STAGE = "dead nodes"; // the last stage whose graph has each step as a node
const MANY = 4; // steps, or inputs, that a cell lists
const PLUMBING = /^(getitem|validate_outputs)(_\d+)?$/; // steps that only take results apart and check them

export const mountBackward: LaterMount = (parent, { state }, tools) => {
  let shown: readonly VisitRecord[] | null = null;
  let chosen = -1;
  const update = (): void => {
    const { visits } = state.compilation;
    if (shown === visits) return;
    shown = visits;
    chosen = -1;
    if (!visits.length) {
      replace(parent, tools.notYet(state, "The backward is not captured"));
      return;
    }
    const rows = visits.map((_, i) => row(state, tools, i, (i) => choose(i)));
    const lines = arcs(visits);
    const choose = (i: number): void => {
      chosen = chosen === i ? -1 : i;
      rows.forEach((element, k) => mark(element, chosen < 0 ? null : relation(visits, chosen, k)));
      lines.choose(chosen);
    };
    const body = h("tbody", {}, rows);
    const place = h("div", { class: "table backward-table" }, lines.element, frame(visits, tools, body));
    replace(
      parent,
      h("style", {}, styles),
      h("div", { class: "page" }, h("p", { class: "lead" }, lead(visits)), place),
    );
    lines.draw(rows);
    const watch = new ResizeObserver(() => lines.draw(rows));
    watch.observe(place);
    stop = () => watch.disconnect();
  };
  let stop = (): void => undefined;
  update();
  return { update, destroy: () => stop() };
};

function lead(visits: readonly VisitRecord[]): string {
  const parts = new Set(visits.flatMap(({ parts: some }) => some));
  const hooks = visits.reduce((count, { hooks: some }) => count + some.length, 0);
  const copied = new Set(visits.map(({ copied: prefix }) => prefix).filter(Boolean));
  return (
    `${plural(visits.length, "node")} of the autograd graph, in the order in which eager runs them. ` +
    `They became ${plural(parts.size, "graph")} for the compiler` +
    (copied.size
      ? `, which ${copied.size > 1 ? "contain" : "contains"} the backward of ${plural(copied.size, "compiled forward")}`
      : "") +
    (hooks ? `; ${plural(hooks, "hook")} ${hooks > 1 ? "run" : "runs"} in between.` : ".")
  );
}

function frame(visits: readonly VisitRecord[], { explained }: Tools, body: HTMLElement): HTMLElement {
  const head = (title: string): HTMLElement => h("th", { scope: "col", ...explained("columns", title) }, title);
  return h(
    "table",
    {},
    h("caption", {}, "Autograd nodes"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        head("#"),
        head("Node"),
        visits.some(({ hooks }) => hooks.length) && head("Hooks"),
        head("Became"),
        head("Waits for"),
        head("Frees"),
        head("Runs in"),
      ),
    ),
    body,
  );
}

function row(state: State, { chip }: Tools, i: number, choose: (i: number) => void): HTMLElement {
  const { compilation } = state;
  const { visits } = compilation;
  const visit = visits[i]!;
  const element = h(
    "tr",
    { class: "link", tabindex: "0", "aria-label": `${visit.node} ${visit.subject}` },
    h("td", { class: "number" }, i),
    h(
      "th",
      { scope: "row", class: "code" },
      forwardOf(state, visit) ?? h("span", {}, visit.node),
      visit.subject && h("span", { class: "leaf" }, visit.subject),
    ),
    visits.some(({ hooks }) => hooks.length) &&
      h(
        "td",
        {},
        visit.hooks.map((hook) => chip(hook.replace(/s$/, ""), "warn")),
      ),
    h("td", { class: "code" }, steps(state, compilation, visit)),
    h(
      "td",
      { class: "number" },
      visit.waits_for.map((other) => jump(other, choose)),
    ),
    h("td", { class: "code" }, some(visit.frees, freed)),
    h(
      "td",
      {},
      visit.parts.map((part) => chip(`part ${part}`, `storage s${part % 6}`)),
      !visit.parts.length && chip("Python"),
    ),
  );
  element.addEventListener("click", ({ target }) => (target as Element).closest("button") || choose(i));
  element.addEventListener("keydown", ({ key, target }) => {
    if (key === "Enter" && target === element) choose(i);
  });
  return element;
}

/** The nodes of the captured graph, as links into its drawing and code. */
function steps(state: State, compilation: CompilationData, visit: VisitRecord): Child {
  const stage = compilation.stages.findIndex(({ name }) => name === GRAPH_STAGE);
  const link = (name: string): Child => {
    const open = (): void => {
      state.openNamed(stage, "backward", name);
      state.openView("graph");
    };
    return h("button", { type: "button", class: "link", title: "show in the graph", on: { click: open } }, name);
  };
  const first = visit.steps.filter((name) => !PLUMBING.test(name));
  return some(
    [...first, ...visit.steps.filter((name) => PLUMBING.test(name))],
    link,
    Math.min(MANY, first.length || 1),
  );
}

/** An input, without the name of the node that saved it. */
function freed(name: string): HTMLElement {
  const saved = /_saved_(\d+)$/.exec(name);
  return h("code", { title: name }, saved ? `saved ${saved[1]}` : name);
}

/** The first names, and the rest on demand. */
function some(names: readonly string[], cell: (name: string) => Child, count = MANY): Child {
  const listed = (some: readonly string[]): HTMLElement[] =>
    some.map((name) => h("span", { class: "one" }, cell(name)));
  const rest = names.slice(count);
  if (!rest.length) return listed(names);
  const more = h("details", { class: "more" }, h("summary", {}, `and ${rest.length} more`));
  more.addEventListener("toggle", () => more.childElementCount === 1 && more.append(...listed(rest)), { once: true });
  return [listed(names.slice(0, count)), more];
}

function jump(other: number, choose: (i: number) => void): HTMLElement {
  return h(
    "button",
    { type: "button", class: "link", title: "select that node", on: { click: () => choose(other) } },
    other,
  );
}

/** A link to the forward whose backward this node is, if the recording has its compilation. */
function forwardOf(state: State, { node }: VisitRecord): HTMLElement | null {
  const name = node.replace(/^backward of /, "");
  const place = state.recording.index.compilations.findIndex((one) => one.name === name);
  if (name === node || place < 0) return null;
  return h(
    "button",
    {
      type: "button",
      class: "link",
      title: `open the compilation of ${name}`,
      on: { click: () => state.openCompilation(place) },
    },
    node,
  );
}

function mark(element: HTMLElement, how: Relation | null): void {
  element.classList.toggle("waits", how === "waits");
  element.classList.toggle("feeds", how === "feeds");
  if (how === "chosen") element.setAttribute("aria-current", "true");
  else element.removeAttribute("aria-current");
}
