// The values of a painting as a table beside the drawing: sorted, searched, and a click selects the node.

import { h, quoted, replace, searchField } from "../../dom";
import { plural, thousands } from "../../format";
import type { Graph } from "../../graph";
import type { State } from "../../state";
import type { Painting } from "../../wire";
import { type Column, reselect, table } from "../table";
import { scaleOf, shown, type Value, valueAt, valuesIn } from "./painting";

export interface ValueRow {
  readonly name: string;
  readonly where: string; // the stage and the graph that the value is of, "" for all
  readonly value: Value;
  readonly text: string;
  readonly node: number; // in the shown graph, or -1
}

/** The values of the shown graph's nodes first, then those of other graphs; each of them from the largest. */
export function rowsOf(painting: Painting, graph: Graph, stage: string): ValueRow[] {
  const nodes = new Map(graph.nodes.map(({ name, index }) => [name, index]));
  const missing = new Set(valuesIn(painting, graph, stage).missing);
  const rows = painting.names.flatMap((name, i) => {
    const value = valueAt(painting, i);
    const where = [painting.stages[i], painting.graphs[i]].filter(Boolean).join(" · ");
    if (value === undefined) return [];
    const node = missing.has(i) ? -1 : (nodes.get(name) ?? -1);
    return [{ name, where, value, text: shown(value, painting.unit), node }];
  });
  return rows.sort((a, b) => Number(a.node < 0) - Number(b.node < 0) || rank(b.value) - rank(a.value));
}

/** NaN is above infinity. */
function rank(value: Value): number {
  if (typeof value === "string") return 0;
  return Number.isNaN(value) ? Infinity : Math.min(value, Number.MAX_VALUE);
}

/** Whether a row has all words. `>3` and `<=0.5` compare its number. */
export function matches({ name, text, value, where }: ValueRow, query: string): boolean {
  return query
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => {
      const [, sign, limit] = /^([<>]=?)(.+)$/.exec(word) ?? [];
      if (!sign || Number.isNaN(Number(limit))) return `${name} ${text} ${where}`.toLowerCase().includes(word);
      if (typeof value !== "number") return false;
      const to = Number(limit);
      if (value === to) return sign.endsWith("=");
      return sign.startsWith(">") ? value > to : value < to;
    });
}

const MOST_NAMED = 12; // names in a tooltip

/** What the colours are, before their legend: the label, how the steps were chosen, and what is not shown. */
export function paintingKey(painting: Painting, graph: Graph, stage: string): HTMLElement {
  const { of, missing } = valuesIn(painting, graph, stage);
  const numbers = of.filter((value) => typeof value === "number");
  const steps = painting.texts.length ? "" : scaleOf(numbers, painting.unit).said;
  const names = missing.slice(0, MOST_NAMED).map((i) => painting.names[i]);
  const rest = missing.length - names.length;
  return h(
    "div",
    { class: "painting-key" },
    painting.note && h("p", {}, quoted(painting.note)),
    h("strong", {}, titleOf(painting)),
    steps && h("span", {}, steps),
    missing.length > 0 &&
      h(
        "span",
        { title: `${names.join(", ")}${rest ? ` and ${rest} more` : ""}` },
        `${thousands(missing.length)} of ${plural(painting.names.length, "name")} not in this graph`,
      ),
  );
}

function titleOf({ label, unit }: Painting): string {
  return unit ? `${label} (${unit})` : label;
}

export interface ValuesTable {
  readonly element: HTMLElement;
  update(): void; // after the painting, the graph or the selection changed
}

export function valuesTable(state: State): ValuesTable {
  const field = searchField("Search values", "Search the values: words, or a comparison such as >3");
  const count = h("output", { "aria-live": "polite" });
  const list = h("div", { class: "list" });
  const element = h("div", { class: "painted-values", hidden: true }, h("div", {}, field, count), list);
  let of: readonly unknown[] = [];
  const columns: Column<ValueRow>[] = [
    {
      title: "node",
      hint: "The node, the stage and the graph if the value is only of these, and whether this graph has the node.",
      order: ({ name }) => name,
      cell: ({ name, where, node }) => [
        name,
        (where || node < 0) && h("small", {}, [where, node < 0 && "not in this graph"].filter(Boolean).join(", ")),
      ],
    },
    {
      title: "value",
      hint: "What was painted.",
      kind: "number",
      order: ({ value }) => (typeof value === "number" ? rank(value) : value),
      cell: ({ text }) => text,
    },
  ];
  const fill = (): void => {
    const { painting, graph, stage } = state;
    if (!painting || !graph) return;
    const rows = rowsOf(painting, graph, stage?.name ?? "");
    const found = rows.filter((row) => matches(row, field.value));
    count.textContent = found.length < rows.length ? `${found.length} of ${plural(rows.length, "value")}` : "";
    replace(
      list,
      table(titleOf(painting), columns, found, {
        onRow: ({ node }) => node >= 0 && state.openNode(node),
        selected: ({ node }) => node >= 0 && node === state.selection.node,
      }),
    );
  };
  field.addEventListener("input", fill);
  return {
    element,
    update() {
      const now = [state.painting, state.graph, state.stage?.name];
      if (now.some((part, i) => part !== of[i])) {
        if (now[0] !== of[0]) field.value = "";
        of = now;
        fill();
      } else reselect(list);
    },
  };
}
