// A plain table: caption, head, rows of text. Sortable tables come with the views that need them.

import { type Child, h } from "../dom";

const MOST_ROWS = 1500;

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
  const body = rows.slice(0, MOST_ROWS).map((row) => {
    const cells = used.map((column, i) => h(i === 0 ? "th" : "td", { class: column.kind ?? "text", ...(i === 0 ? { scope: "row" } : {}) }, shaped(column, row)));
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
  return h("div", { class: "table" }, h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, body)),
    rows.length > MOST_ROWS && h("p", { class: "muted" }, `and ${rows.length - MOST_ROWS} more, in the DataFrame of the same name`));
}

function shaped<Row>(column: Column<Row>, row: Row): Child {
  const cell = column.cell(row);
  return column.kind === "code" && typeof cell === "string" && cell ? codeText(cell) : cell;
}

/** Code that is broken only where it is long. */
export function codeText(text: string): HTMLElement {
  const span = h("span", {}, text);
  span.style.minWidth = `${Math.min(text.length, 26)}ch`;
  return span;
}

function isEmpty(cell: Child): boolean {
  return cell === null || cell === undefined || cell === false || cell === "" || (Array.isArray(cell) && cell.every(isEmpty));
}

/** A short word in a rounded frame. */
export function chip(text: string, kind = "", title = ""): HTMLElement {
  return h("span", { class: `chip ${kind}`, title: title || undefined }, text);
}
