// The pages of the view of records: for each kind of rows, what its table shows, and what the search looks in.

import { called, calledIn } from "../../called";
import { answeredInFull } from "../../cached";
import { type Child, h, keepInView, quoted, replace } from "../../dom";
import { functionName, milliseconds, number, place as placed, plural, thousands } from "../../format";
import { breakText } from "../../rows";
import type { Rows } from "../../source";
import type { State } from "../../state";
import {
  type ArtifactRecord,
  type CacheLookup,
  type CompilationHead,
  Float,
  type GraphBreak,
  type GuardRecord,
  type MetricsRecord,
  NONE,
  type Origin,
  type ShapeRecord,
} from "../../wire";
import { chip, type Column, reselect, table } from "../table";
import { differences } from "./ranks";
import { type Compiled, type Frame, framesOf, kept, type Outcome, treeOf } from "./stacks";

const AS_WRITTEN = "As torch wrote it";

export interface Page {
  readonly kind: string; // of rows, see RowsPart
  readonly title: string;
  /** The rows in which all words occur. `told` gets how many there are of how many. */
  show(state: State, rows: Rows, words: readonly string[], told: (shown: number, all: number) => void): HTMLElement;
}

export const PAGES: readonly Page[] = [
  {
    kind: "ranks",
    title: "Ranks",
    show(state, { part }, words, told) {
      const all = part.rank_differences;
      const shown = all.filter((one) => matches(words, JSON.stringify(one).toLowerCase()));
      told(shown.length, all.length);
      const positions = new Map(state.recording.index.compilations.map(({ id }, i) => [id, i]));
      return differences(shown, (ids) => ids.map((id) => opener(state, positions.get(id) ?? NONE)));
    },
  },
  { kind: "stacks", title: "Stacks", show: showStacks },
  page<GraphBreak>(
    "graph_breaks",
    "Graph breaks",
    (part) => part.graph_breaks,
    (text, plain) => [
      {
        title: "Your line",
        kind: "code",
        order: (row) => text(row.place),
        cell: (row) => whence(text(row.place), text(row.stack)),
      },
      {
        title: "Reason",
        kind: "prose",
        order: (row) => plain(breakText(row)),
        cell: (row) => more(plain(breakText(row)), text(breakText(row))),
      },
    ],
  ),
  page<GuardRecord>(
    "guards",
    "Guards",
    (part) => part.guards,
    (text, plain) => [
      {
        title: "On",
        kind: "code",
        order: (row) => plain(row.source),
        cell: (row) => plain(row.source) || h("span", { class: "faint" }, "torch's state, or several values"),
      },
      {
        title: AS_WRITTEN,
        term: "Check",
        kind: "code",
        order: (row) => text(row.text),
        cell: (row) => h("span", { class: "as-written" }, long(text(row.text))),
      },
      { title: "Kind", term: "Kind of a guard", order: (row) => row.kind, cell: (row) => row.kind },
      {
        title: "Your line",
        kind: "code",
        order: (row) => text(row.place),
        cell: (row) => whence(text(row.place), text(row.stack), text(row.code)),
      },
    ],
  ),
  page<ShapeRecord>(
    "shapes",
    "Symbolic shapes",
    (part) => part.shapes,
    (text, plain) => [
      {
        title: "Expression",
        kind: "code",
        order: (row) => text(row.expression),
        cell: (row) => number(text(row.expression)),
      },
      { title: "Step", order: (row) => row.kind, cell: (row) => step(row.kind) },
      { title: "Value", kind: "code", order: (row) => text(row.value), cell: (row) => number(text(row.value)) },
      {
        title: "Comes from",
        kind: "code",
        order: (row) => plain(row.source),
        cell: (row) => plain(row.source),
      },
      { title: "Reason", kind: "prose", cell: (row) => quoted(text(row.reason)) },
      { title: "Your line", kind: "code", cell: (row) => innermost(text(row.stack)) },
    ],
  ),
  page<CacheLookup>(
    "cache_lookups",
    "Cache lookups",
    (part) => part.cache_lookups,
    (text, _, headOf) => [
      { title: "Cache", order: (row) => row.cache, cell: (row) => row.cache },
      {
        title: "Outcome",
        order: (row) => row.outcome,
        cell: (row) => chip(row.outcome, row.outcome === "hit" ? "added" : "warn"),
      },
      { title: "Reason", kind: "prose", cell: (row) => quoted(text(row.reason) || ownReason(row, headOf(row.origin))) },
      { title: "Key", kind: "code", order: (row) => row.key, cell: (row) => row.key },
    ],
  ),
  { kind: "metrics", title: "Metrics", show: showMetrics },
  page<ArtifactRecord>(
    "links",
    "Links",
    (part) => part.links,
    (text) => [
      { title: "Name", order: (row) => text(row.name), cell: (row) => text(row.name) },
      { title: "Address", kind: "code", cell: (row) => link(address(text(row.fields))) },
    ],
  ),
];

/** What aotviz's own cache said, and what differs from the nearest key. */
function ownReason({ cache }: CacheLookup, head: CompilationHead | undefined): string {
  return cache === "aotviz" && head?.cache ? answeredInFull(head.cache) : "";
}

/** A page that is one table. */
function page<Row extends { readonly origin: Origin }>(
  kind: string,
  title: string,
  list: (part: Rows["part"]) => readonly Row[],
  columns: (
    text: Rows["text"],
    plain: Rows["plain"],
    headOf: (origin: Origin) => CompilationHead | undefined,
  ) => readonly Column<Row>[],
): Page {
  return {
    kind,
    title,
    show(state, rows, words, told) {
      const all = list(rows.part);
      const shown = all.filter((row) => matches(words, haystack(state, rows, row)));
      told(shown.length, all.length);
      const headOf = (origin: Origin): CompilationHead | undefined =>
        state.recording.index.compilations[position(state, rows, origin)];
      return table(title, [compilationOf(state, rows), ...columns(rows.text, rows.plain, headOf)], shown);
    },
  };
}

/** All that a row says, in small letters. */
function haystack(state: State, rows: Rows, row: { readonly origin: Origin }): string {
  const said: string[] = [];
  for (const [field, value] of Object.entries(row)) {
    if (field === "origin") continue;
    if (typeof value === "number") said.push(rows.text(value));
    else if (typeof value === "string") said.push(value);
    else if (value instanceof Map)
      for (const [key, one] of value) said.push(`${key} ${typeof one === "number" ? `${one} ${rows.text(one)}` : one}`);
  }
  const head = state.recording.index.compilations[position(state, rows, row.origin)];
  return `${head ? called(head) : ""} ${said.join(" ")}`.toLowerCase();
}

function matches(words: readonly string[], text: string): boolean {
  return words.every((word) => text.includes(word));
}

function position(state: State, { part }: Rows, { compilation }: Origin): number {
  const id = part.compilations[compilation];
  return id === undefined ? NONE : state.recording.index.compilations.findIndex((head) => head.id === id);
}

function compilationOf<Row extends { readonly origin: Origin }>(state: State, rows: Rows): Column<Row> {
  const positions = new Map(state.recording.index.compilations.map(({ id }, i) => [id, i]));
  return {
    title: "Compilation",
    kind: "code",
    order: (row) => row.origin.compilation,
    cell: ({ origin }) => opener(state, positions.get(rows.part.compilations[origin.compilation] ?? "") ?? NONE),
  };
}

/** A button that opens a compilation. */
function opener(state: State, position: number): Child {
  const head = state.recording.index.compilations[position];
  if (!head) return "";
  const open = (event: Event): void => {
    event.stopPropagation();
    state.openCompilation(position);
  };
  const data = { compilation: head.id };
  return h("button", { type: "button", class: "link", data, on: { click: open } }, calledIn(head));
}

/** A place with its code; a click shows the whole stack. */
function whence(place: string, stack: string, code = ""): Child {
  if (!place) return "";
  const colon = place.lastIndexOf(":");
  const line = parseInt(place.slice(colon + 1), 10);
  const short = functionName(colon > 0 && line > 0 ? placed(place.slice(0, colon), line) : place);
  return [
    stack.includes("\n") ? more(short, stack, functionName(place)) : h("span", { title: functionName(place) }, short),
    code && h("small", { class: "line", title: code }, code),
  ];
}

function more(short: string, all: string, title = ""): Child {
  if (!all || all === short) return quoted(short);
  const details = h("details", {}, h("summary", { title: title || undefined }, quoted(short)));
  details.addEventListener(
    "toggle",
    () =>
      details.childElementCount === 1 &&
      details.append(h("pre", { class: "as-written", tabindex: "0", "aria-label": AS_WRITTEN }, all)),
    {
      once: true,
    },
  );
  return details;
}

/** The user's line: the last frame of a stack. */
function innermost(stack: string): Child {
  const frame = framesOf(stack).pop();
  return frame ? whence(`${frame.file}:${frame.line}`, stack, frame.code) : "";
}

function step(kind: string): string {
  return kind.replace(/_fast$/, "").replace(/_/g, " ");
}

/** The address in a link's fields; "" if there is none that a browser should open. */
function address(fields: string): string {
  try {
    const said = JSON.parse(fields) as { url?: unknown };
    return typeof said.url === "string" ? said.url : "";
  } catch {
    return "";
  }
}

/** A log may come from a stranger: only an address of the web is a link. */
function link(url: string): Child {
  if (!/^https?:\/\//i.test(url)) return url;
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, url);
}

const COLOUR: Record<Outcome, string> = {
  compiled: "added",
  failed: "removed",
  "ran in eager": "warn",
  restarted: "warn",
  "empty graph": "",
};

function showStacks(
  state: State,
  rows: Rows,
  words: readonly string[],
  told: (shown: number, all: number) => void,
): HTMLElement {
  const tree = treeOf(rows, state.recording.index);
  const found = kept(tree, ({ head, outcomes }, under) =>
    matches(words, `${called(head)} ${outcomes.join(" ")} ${under}`.toLowerCase()),
  );
  told(count(found), count(tree));
  const one = ({ position, head, outcomes }: Compiled): HTMLElement =>
    h(
      "li",
      { class: "compiled", data: { compilation: head.id } },
      opener(state, position),
      " ",
      outcomes.map((outcome) => chip(outcome, COLOUR[outcome], head.error?.message)),
    );
  const level = (frames: readonly Frame[]): HTMLElement[] =>
    frames.flatMap((frame) => {
      const line = h(
        "div",
        { class: "frame", title: `${frame.file}:${frame.line}` },
        h("code", {}, placed(frame.file, frame.line)),
        frame.scope && h("span", { class: "faint" }, ` in ${frame.scope}`),
        frame.code && h("code", { class: "muted" }, frame.code),
      );
      const compiled = frame.compiled.length > 0 && h("ul", {}, frame.compiled.map(one));
      // A frame that leads to one other is above it; only where stacks part, the rest is indented.
      if (frame.below.length === 1 && !compiled && frames.length === 1)
        return [h("li", {}, line), ...level(frame.below)];
      const below = frame.below.length > 0 && h("ul", {}, level(frame.below));
      return [
        h("li", {}, below ? h("details", { open: true }, h("summary", {}, line), compiled, below) : [line, compiled]),
      ];
    });
  return h("div", { class: "stacks" }, h("ul", { "aria-label": "Stacks" }, level(found)));
}

function count(frames: readonly Frame[]): number {
  return frames.reduce((sum, { compiled, below }) => sum + compiled.length + count(below), 0);
}

function showMetrics(
  state: State,
  rows: Rows,
  words: readonly string[],
  told: (shown: number, all: number) => void,
): HTMLElement {
  const all = rows.part.metrics;
  const shown = all.filter((row) => matches(words, haystack(state, rows, row)));
  told(shown.length, all.length);
  const details = h("div", {});
  let open: MetricsRecord | null = null;
  const number = (row: MetricsRecord, ...names: string[]): number => {
    for (const name of names) {
      const found = row.numbers.get(name);
      const value = typeof found === "object" ? (found as Float).value : found;
      if (value !== undefined) return name.endsWith("_s") ? value * 1e6 : value;
    }
    return NONE;
  };
  const column = (title: string, term: string, isTime: boolean, ...names: string[]): Column<MetricsRecord> => ({
    title,
    term,
    kind: "number",
    order: (row) => -number(row, ...names),
    cell: (row) => {
      const value = number(row, ...names);
      return value < 0 || (isTime && value === 0) ? "" : isTime ? milliseconds(value * 1e3) : thousands(value);
    },
  });
  const list = table<MetricsRecord>(
    "Compilation metrics",
    [
      compilationOf(state, rows),
      { title: "Of", cell: (row) => row.kind },
      column("Time", "Time", true, "duration_us", "entire_frame_compile_time_s"),
      column("AOTAutograd", "AOTAutograd's time", true, "aot_autograd_cumulative_compile_time_us"),
      column("Inductor", "Inductor's time", true, "inductor_cumulative_compile_time_us", "inductor_compile_time_s"),
      column("Operators", "Operators", false, "graph_op_count"),
      column("Guards", "Guards", false, "guard_count"),
      column("Guards take", "Guards take", true, "guard_latency_us"),
      {
        title: "Failed",
        kind: "prose",
        cell: (row) => row.fail_type && [chip(row.fail_type, "removed"), quoted(rows.plain(row.fail_reason))],
      },
    ],
    shown,
    {
      onRow: (row) => {
        open = open === row ? null : row;
        reselect(list);
        replace(details, open && inFull(state, rows, open));
        const scroller = details.closest(".page");
        if (open && scroller) keepInView(scroller, details);
      },
      selected: (row) => row === open,
    },
  );
  return h(
    "div",
    { class: "stack" },
    h("p", { class: "muted" }, "A click on a row shows all that torch counted."),
    list,
    details,
  );
}

function inFull(state: State, rows: Rows, row: MetricsRecord): HTMLElement {
  const said: [string, Child][] = [
    ...[...row.numbers].map(([name, value]): [string, Child] => [
      name,
      String(typeof value === "object" ? (value as Float).value : value),
    ]),
    ...[...row.texts].map(([name, text]): [string, Child] => [name, long(rows.text(text))]),
  ];
  const head = state.recording.index.compilations[position(state, rows, row.origin)];
  return table(
    `${plural(said.length, "metric")} of ${head ? called(head) : "no compilation"}`,
    [
      { title: "Name", kind: "code", order: ([name]) => name, cell: ([name]) => name },
      {
        title: AS_WRITTEN,
        kind: "code",
        cell: ([, value]) => h("span", { class: "as-written" }, value),
        term: "Value",
      },
    ],
    said,
  );
}

function long(text: string): Child {
  return text.length > 120 ? more(`${text.slice(0, 100)} …`, text) : text;
}
