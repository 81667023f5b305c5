// Several compilations beside each other: the board of each, its wrapper and its graph, with what differs marked. A
// narrow place shows one below the other.

import { type Child, h, quoted } from "../../dom";
import { plural } from "../../format";
import type { Graph } from "../../graph";
import type { Need, Recording } from "../../model";
import { State } from "../../state";
import type { CompilationData } from "../../wire";
import { board } from "../aliasing/board";
import { differingRows } from "../aliasing/rows";
import { listingIn } from "../listings";
import type { Context } from "../view";
import { takeAsked, showLines } from "../wrapper/lines";
import { differingLines, nodeLines } from "./differing";
import { drawing, MOST_DRAWN } from "./drawing";

const MOST_LINES = 400; // of a wrapper or a graph

/** A column: the position of a compilation, or -1, and what is above it. */
export interface Column {
  readonly compilation: number;
  head(): Child;
  readonly error?: string;
}

/** The graph that a call runs, after the last stage that has it. */
export function callGraph({ stages, kind }: CompilationData): { stage: number; role: string } | null {
  const role = kind === "training" ? "forward" : "inference";
  const stage = stages.findLastIndex(({ graphs }) => graphs.has(role));
  return stage < 0 ? null : { stage, role };
}

/** What must be loaded for the columns. */
export function columnNeeds(recording: Recording, columns: readonly Column[]): Need[] {
  return columns
    .filter(({ compilation }) => compilation >= 0)
    .flatMap(({ compilation }) => {
      const place = callGraph(recording.compilation(compilation));
      return [
        { what: "compilation", compilation } as const,
        ...(place ? recording.graphNeed(compilation, place.stage, place.role) : []),
      ];
    });
}

/** The boards of the columns. A click in one opens its compilation there. */
export function boards(state: State, columns: readonly Column[]): HTMLElement {
  const shown = columns.filter(({ compilation, error }) => compilation >= 0 && !error);
  const lit = differingRows(shown.map(({ compilation }) => state.recording.compilation(compilation)));
  return row("Memory", columns, (column) => {
    const own = stateOf(state, column.compilation);
    const made = board(own, { everything: true, lit: lit[shown.indexOf(column)]! });
    return own.compilation.storages.length ? made : missing("Nothing is known about its memory.");
  });
}

/** The sources of the wrappers. */
export function wrappers(state: State, columns: readonly Column[]): HTMLElement {
  const texts = columns.map(({ compilation }) => {
    const source = compilation < 0 ? "" : (state.recording.compilation(compilation).wrapper?.source ?? "");
    return source ? source.replace(/\n$/, "").split("\n") : [];
  });
  const there = texts.filter((lines) => lines.length);
  const lit = differingLines(there);
  return row("Wrapper", columns, (column) => {
    const lines = texts[columns.indexOf(column)]!;
    return lines.length ? code(lines, lit[there.indexOf(lines)]!) : missing("There is no wrapper.");
  });
}

/** The graphs, as drawings where they are small enough to be read in a column, or as text. */
export function graphs(
  state: State,
  layouter: Context["layouter"],
  columns: readonly Column[],
  asText: boolean,
): HTMLElement {
  const found = columns.map((column) => ({ column, graph: graphOf(state, column) }));
  const nodesOf = found.map(({ column, graph }) =>
    graph ? nodeLines(state.recording, state.recording.compilation(column.compilation), graph) : [],
  );
  const there = nodesOf.filter((lines) => lines.length);
  const lit = differingLines(there);
  return row("Graph", columns, (column) => {
    const at = columns.indexOf(column);
    const { graph } = found[at]!;
    if (!graph) return missing("There is no graph.");
    const nodes = lit[there.indexOf(nodesOf[at]!)]!;
    if (!asText && graph.nodes.length <= MOST_DRAWN)
      return drawing(stateOf(state, column.compilation), layouter, graph, nodes);
    const listing = listingIn(state.recording, state.recording.compilation(column.compilation), graph);
    return code(listing.lines, new Set(listing.nodes.flatMap((node, line) => (nodes.has(node) ? [line] : []))));
  });
}

function graphOf(state: State, { compilation }: Column): Graph | null {
  const data = compilation < 0 ? null : state.recording.compilation(compilation);
  const place = data && callGraph(data);
  return place ? state.recording.graph(data, data.stages[place.stage]!, place.role) : null;
}

/** A row of cells, one for each column. */
function row(title: string, columns: readonly Column[], content: (column: Column) => Child): HTMLElement {
  return h(
    "section",
    { class: "side-by-side", "aria-label": title },
    columns.map((column) =>
      h(
        "div",
        { class: "side" },
        h("header", {}, column.head(), h("span", { class: "faint" }, title.toLowerCase())),
        column.compilation < 0 || column.error
          ? missing(quoted(column.error || "Nothing was recorded."))
          : content(column),
      ),
    ),
  );
}

function missing(text: Child): HTMLElement {
  return h("p", { class: "muted" }, text);
}

function code(lines: readonly string[], lit: ReadonlySet<number>): HTMLElement {
  const more = lines.length - MOST_LINES;
  return h(
    "ol",
    { class: "code-lines", tabindex: "0", role: "list" },
    lines
      .slice(0, MOST_LINES)
      .map((line, i) =>
        h(
          "li",
          { class: [lit.has(i) ? "lit" : "", /^\s*#/.test(line) ? "comment" : ""].join(" ").trim() || undefined },
          h("span", { class: "number", "aria-hidden": "true" }, i + 1),
          h("code", {}, line || " "),
        ),
      ),
    more > 0 && h("li", { class: "muted" }, `and ${plural(more, "line")}`),
  );
}

/** A state of one compilation; what is opened in it is opened in the reader's own state. */
function stateOf(state: State, compilation: number): State {
  const { id } = state.recording.index.compilations[compilation]!;
  const own = new State(state.recording, { compilation: id });
  own.subscribe((now, before) => {
    if (now.view === before.view) return;
    state.openCompilation(compilation, own.compilation.stages[now.stage]?.name);
    const asked = takeAsked(own);
    if (asked) showLines(state, asked.notes);
    else state.openView(now.view);
  });
  return own;
}
