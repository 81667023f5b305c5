// A plain table: caption, head, rows of text. Sortable tables come with the views that need them.

import { type Child, h } from "../dom";

export interface Column<Row> {
  readonly title: string;
  readonly hint?: string; // what the column means
  readonly kind?: "text" | "code" | "number" | "flags" | "prose";
  cell(row: Row): Child;
}

export interface RowOptions<Row> {
  readonly onRow?: (row: Row) => void;
  readonly selected?: (row: Row) => boolean;
}

export function table<Row>(caption: string, columns: readonly Column<Row>[], rows: readonly Row[], options: RowOptions<Row> = {}): HTMLElement {
  // A column that is empty in every row says nothing; it is left out.
  const used = columns.filter((column) => rows.some((row) => !isEmpty(column.cell(row))));
  const head = h("tr", {}, used.map((column) => h("th", { scope: "col", class: column.kind ?? "text", title: column.hint }, column.title)));
  const body = rows.map((row) => {
    const cells = used.map((column, i) => h(i === 0 ? "th" : "td", { class: column.kind ?? "text", ...(i === 0 ? { scope: "row" } : {}) }, column.cell(row)));
    const { onRow } = options;
    const line = h("tr", { class: onRow ? "link" : undefined, tabindex: onRow ? "0" : undefined, "aria-selected": options.selected?.(row) ? "true" : undefined }, cells);
    if (onRow) {
      line.addEventListener("click", () => onRow(row));
      line.addEventListener("keydown", (event) => {
        if (event.key === "Enter") onRow(row);
      });
    }
    return line;
  });
  return h("div", { class: "table" }, h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, body)));
}

function isEmpty(cell: Child): boolean {
  return cell === null || cell === undefined || cell === false || cell === "" || (Array.isArray(cell) && cell.every(isEmpty));
}

/** A short word in a rounded frame. */
export function chip(text: string, kind = "", title = ""): HTMLElement {
  return h("span", { class: `chip ${kind}`, title: title || undefined }, text);
}
