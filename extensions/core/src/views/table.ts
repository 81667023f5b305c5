// A table with a caption, a head and rows of text. A column with an order is sortable. A row may be clicked, or reached
// with Tab and chosen with Enter. When the selection changes, `reselect` marks other rows in a table that stays.

import { append, type Child, h, replace } from "../dom";
import { thousands } from "../format";
import { explained } from "../terms";

const MOST_ROWS = 1500;

export interface Column<Row> {
  readonly title: string;
  readonly term?: string; // its name in terms.toml, if that is not its title
  readonly hint?: string; // what the column means, if it is not in terms.toml
  readonly kind?: "text" | "code" | "number" | "flags" | "prose";
  readonly order?: (row: Row) => number | string; // to sort by
  cell(row: Row): Child;
}

export interface RowOptions<Row> {
  readonly onRow?: (row: Row) => void;
  readonly selected?: (row: Row) => boolean; // now; asked again by `reselect`
}

const selections = new WeakMap<Element, () => boolean>(); // of rows

/** Marks the rows in `place` that are selected now. The order of the rows, the focus and the scroll position stay. */
export function reselect(place: Element): void {
  for (const row of place.querySelectorAll("tr")) {
    const isSelected = selections.get(row);
    if (isSelected?.()) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
}

export function table<Row>(
  caption: string,
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  options: RowOptions<Row> = {},
): HTMLElement {
  // A column that is empty in every row is left out.
  const used = columns.filter((column) => rows.some((row) => !isEmpty(column.cell(row))));
  const body = h("tbody");
  const rest = h("p", { class: "muted" });
  const lines = (some: readonly Row[]): HTMLElement[] => some.map((row) => line(row, used, options));
  const fill = (sorted: readonly Row[], room = MOST_ROWS): void => {
    replace(body, lines(sorted.slice(0, room)));
    tell(sorted, room);
  };
  const tell = (sorted: readonly Row[], room: number): void => {
    const more = (): void => {
      append(body, lines(sorted.slice(room, room + MOST_ROWS)));
      tell(sorted, room + MOST_ROWS);
    };
    const left = sorted.length - room;
    rest.hidden = left <= 0;
    if (left <= 0) return;
    const next = `show ${thousands(Math.min(left, MOST_ROWS))} more`;
    replace(
      rest,
      `and ${thousands(left)} more rows: `,
      h("button", { type: "button", class: "link", on: { click: more } }, next),
    );
  };
  const heads = used.map((column) =>
    h(
      "th",
      {
        scope: "col",
        class: column.kind ?? "text",
        ...explained("columns", column.term ?? column.title, column.hint),
      },
      column.order ? "" : column.title,
    ),
  );
  used.forEach((column, i) => {
    if (column.order)
      heads[i]!.append(
        h("button", { type: "button", on: { click: () => sortBy(column, heads[i]!) } }, column.title || "kind"),
      );
  });
  const sortBy = (column: Column<Row>, head: HTMLElement): void => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    fill([...rows].sort((a, b) => (down ? -1 : 1) * inOrder(column.order!(a), column.order!(b))));
  };
  fill(rows);
  return h(
    "div",
    { class: "table" },
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads)), body),
    rest,
  );
}

function inOrder(a: number | string, b: number | string): number {
  return typeof a === "number" && typeof b === "number" ? a - b || 0 : String(a).localeCompare(String(b));
}

function line<Row>(row: Row, columns: readonly Column<Row>[], { onRow, selected }: RowOptions<Row>): HTMLElement {
  const cells = columns.map((column, i) =>
    h(
      i === 0 ? "th" : "td",
      { class: column.kind ?? "text", ...(i === 0 ? { scope: "row" } : { data: { title: column.title } }) },
      shaped(column, row),
    ),
  );
  const element = h(
    "tr",
    {
      class: onRow ? "link" : undefined,
      tabindex: onRow ? "0" : undefined,
      "aria-current": selected?.(row) ? "true" : undefined,
    },
    cells,
  );
  if (selected) selections.set(element, () => selected(row));
  if (onRow) {
    element.addEventListener("click", () => onRow(row));
    element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === element) onRow(row); // not a link in it
    });
  }
  return element;
}

function shaped<Row>(column: Column<Row>, row: Row): Child {
  const cell = column.cell(row);
  return column.kind === "code" && typeof cell === "string" && cell ? codeText(cell) : cell;
}

const NARROW = 12; // characters of code that a table in a narrow place has room for (tables.css)

/**
 * Code that wraps only if it is longer than `room` characters or the place is narrow, and then between words.
 */
export function codeText(text: string, room = 22): HTMLElement {
  const span = h("span", {}, text.length > NARROW ? breakable(text) : text);
  span.style.setProperty("--code", `${Math.min(text.length, room)}ch`);
  return span;
}

function isEmpty(cell: Child): boolean {
  return (
    cell === null || cell === undefined || cell === false || cell === "" || (Array.isArray(cell) && cell.every(isEmpty))
  );
}

/** A path or a name that may wrap between its words. */
export function breakable(text: string): Child {
  return text.split(/(?<=[._/])/).map((word, i) => [i > 0 && h("wbr"), word]);
}

/** A short word in a rounded frame, of terms.toml; `title` is what is special about this one. */
export function chip(text: string, kind = "", title = ""): HTMLElement {
  return h("span", { class: `chip ${kind}`, ...explained("badges", text, title) }, text);
}
