// The user's lines that the graph comes from, by file. The lines of the selected nodes are marked.

import { h } from "../../dom";
import * as format from "../../format";
import type { Graph } from "../../graph";
import { userFiles } from "../../code/sources";

export class SourcePane {
  readonly element: HTMLElement;
  readonly isEmpty: boolean;
  private readonly rows: { readonly row: HTMLElement; readonly nodes: ReadonlySet<number> }[] = [];

  constructor(graph: Graph, choose: (nodes: readonly number[]) => void) {
    const files = userFiles(graph);
    this.isEmpty = files.length === 0;
    this.element = h(
      "aside",
      { class: "sources", "aria-label": "Your code" },
      files.map(({ file, lines }) => [
        h("h3", { title: file }, format.place(file, 0)),
        lines.map((line, i) => {
          const row = h(
            "button",
            {
              type: "button",
              class: "source",
              "aria-pressed": "false",
              title: `${format.place(file, line.line)}${line.scope && ` in ${line.scope}`}: ${format.plural(line.nodes.length, "node")}`,
              on: { click: () => choose(line.nodes) },
            },
            h("span", { class: "number" }, line.line),
            h("code", {}, line.code || "…"),
            h("span", { class: "count" }, line.nodes.length),
          );
          this.rows.push({ row, nodes: new Set(line.nodes) });
          return [line.scope !== lines[i - 1]?.scope && line.scope && h("h4", {}, line.scope), row];
        }),
      ]),
    );
  }

  mark(chosen: readonly number[]): void {
    let first: HTMLElement | null = null;
    for (const { row, nodes } of this.rows) {
      const on = chosen.some((node) => nodes.has(node));
      row.setAttribute("aria-pressed", String(on));
      if (on) first ??= row;
    }
    if (!first) return;
    const [outer, inner] = [this.element.getBoundingClientRect(), first.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom)
      this.element.scrollTop += inner.top - outer.top - outer.height / 2;
  }
}
