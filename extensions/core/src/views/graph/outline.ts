// The drawing as a tree, for the keyboard and for assistive technology, which cannot read a canvas. It has the same
// groups, open or closed, and the same selection. Only the visible rows are in the page, so twenty thousand nodes
// scroll as fast as twenty.

import { h, replace } from "../../dom";
import { plural } from "../../format";
import { type Group, type Hierarchy, members } from "../../layout/hierarchy";

export interface Row {
  readonly id: string;
  readonly level: number; // 1 for the outermost
  readonly group: Group | null;
  readonly node: number; // -1 for a group
  readonly open: boolean; // of a group
  readonly position: number; // among its siblings, from 1
  readonly siblings: number;
}

export const ROW = 24; // pixels
const AROUND = 6; // rows outside the view that are in the page too

/** The rows of a tree with some open groups, from top to bottom. If there are two lanes, they are rows too. */
export function rowsOf(tree: Hierarchy, open: ReadonlySet<string>): Row[] {
  const out: Row[] = [];
  const lanes = [tree.roots.forward, tree.roots.backward].filter(({ size }) => size > 0);
  const walk = (group: Group, level: number): void => {
    const inside = members(group);
    inside.forEach((member, i) => {
      const place = { level, position: i + 1, siblings: inside.length };
      if (typeof member === "number")
        out.push({ ...place, id: `${group.lane}#${member}`, group: null, node: member, open: false });
      else {
        const shown = open.has(member.id);
        out.push({ ...place, id: member.id, group: member, node: -1, open: shown });
        if (shown) walk(member, level + 1);
      }
    });
  };
  if (lanes.length < 2) lanes.forEach((root) => walk(root, 1));
  else
    lanes.forEach((root, i) => {
      const shown = !open.has(closedLane(root));
      out.push({ id: root.id, level: 1, group: root, node: -1, open: shown, position: i + 1, siblings: 2 });
      if (shown) walk(root, 2);
    });
  return out;
}

/**
 * The entry in the set of open groups for a lane that is closed in the outline (on the canvas a lane is always open).
 */
export function closedLane(root: Group): string {
  return `closed ${root.id}`;
}

export interface OutlineActions {
  open(group: Group, open: boolean): void;
  select(node: number): void;
  cursor(row: Row | null): void; // the focused row
  neighbour(node: number, which: "inputs" | "users"): void;
  key(key: string): boolean; // the canvas's zoom keys
}

export interface Outline {
  readonly element: HTMLElement;
  show(rows: readonly Row[], describe: (row: Row) => { label: string; detail: string; title: string }): void;
  clear(): void;
  /** Marks the selected nodes, and scrolls to `node` if `follow`. */
  select(nodes: readonly number[], node: number, follow: boolean): void;
  focus(): void;
}

export function outline(actions: OutlineActions): Outline {
  let rows: readonly Row[] = [];
  let describe: (row: Row) => { label: string; detail: string; title: string } = () => ({
    label: "",
    detail: "",
    title: "",
  });
  let active = 0; // index of the row that Tab goes to
  let chosen: ReadonlySet<number> = new Set(); // nodes
  let height = 0; // pixels: the element's height when its rows were last created
  const sheet = h("div", { class: "sheet", role: "presentation" });
  const element = h("div", { class: "outline", role: "tree", "aria-label": "Nodes of the graph by module" }, sheet);

  const render = (): void => {
    const first = Math.max(0, Math.floor(element.scrollTop / ROW) - AROUND);
    height = element.clientHeight;
    const last = Math.min(rows.length - 1, Math.ceil((element.scrollTop + (height || 400)) / ROW) + AROUND);
    const focused = hasFocus();
    const shown: HTMLElement[] = [];
    for (let i = first; i <= last; i++) shown.push(rowElement(i));
    if (rows.length && (active < first || active > last)) shown.push(rowElement(active)); // else the focus is lost
    sheet.style.height = `${rows.length * ROW}px`;
    replace(sheet, shown);
    if (focused) activeElement()?.focus({ preventScroll: true });
  };
  const hasFocus = (): boolean => sheet.contains((element.getRootNode() as Document | ShadowRoot).activeElement);
  const activeElement = (): HTMLElement | null => sheet.querySelector('[tabindex="0"]');
  const rowElement = (i: number): HTMLElement => {
    const row = rows[i]!;
    const { label, detail, title } = describe(row);
    const made = h(
      "div",
      {
        role: "treeitem",
        class: `row ${row.group ? "group" : "node"}`,
        tabindex: i === active ? "0" : "-1",
        title,
        "aria-level": row.level,
        "aria-posinset": row.position,
        "aria-setsize": row.siblings,
        "aria-expanded": row.group ? String(row.open) : undefined,
        "aria-selected": String(chosen.has(row.node)),
        data: { row: row.id },
        on: {
          click: () => {
            active = i;
            act(row);
            focusRow();
          },
          focus: () => actions.cursor(row),
          blur: () => actions.cursor(null),
        },
      },
      row.group && h("span", { class: "sign", "aria-hidden": "true" }, row.open ? "▾" : "▸"),
      h("span", { class: "label" }, label),
      detail && h("span", { class: "detail" }, detail),
    );
    made.style.top = `${i * ROW}px`;
    made.style.paddingLeft = `${6 + 13 * (row.level - 1) + (row.group ? 0 : 15)}px`;
    return made;
  };
  const act = (row: Row): void => {
    if (row.group) actions.open(row.group, !row.open);
    else actions.select(row.node);
  };
  const bring = (i: number): void => {
    if (i * ROW < element.scrollTop) element.scrollTop = i * ROW;
    else if ((i + 1) * ROW > element.scrollTop + element.clientHeight)
      element.scrollTop = (i + 1) * ROW - element.clientHeight;
  };
  const focusRow = (): void => {
    bring(active);
    render();
    activeElement()?.focus({ preventScroll: true });
  };
  const move = (to: number): void => {
    active = Math.max(0, Math.min(rows.length - 1, to));
    focusRow();
  };
  const parentOf = (i: number): number => {
    for (let at = i - 1; at >= 0; at--) if (rows[at]!.level < rows[i]!.level) return at;
    return i;
  };
  element.addEventListener("scroll", render, { passive: true });
  new ResizeObserver(() => element.clientHeight !== height && render()).observe(element);
  element.addEventListener("keydown", (event) => {
    const row = rows[active];
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(element.clientHeight / ROW) - 1);
    if (event.key === "ArrowDown") move(active + 1);
    else if (event.key === "ArrowUp") move(active - 1);
    else if (event.key === "PageDown") move(active + page);
    else if (event.key === "PageUp") move(active - page);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(rows.length - 1);
    else if (event.key === "ArrowRight" && row.group) row.open ? move(active + 1) : actions.open(row.group, true);
    else if (event.key === "ArrowLeft") row.group && row.open ? actions.open(row.group, false) : move(parentOf(active));
    else if (event.key === "Enter" || event.key === " ") act(row);
    else if ((event.key === "i" || event.key === "u") && row.node >= 0)
      actions.neighbour(row.node, event.key === "i" ? "inputs" : "users");
    else if (!actions.key(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  });
  return {
    element,
    show(next, how) {
      const kept = rows[active]?.id;
      rows = next;
      describe = how;
      const same = kept === undefined ? -1 : rows.findIndex(({ id }) => id === kept);
      active = Math.max(0, same >= 0 ? same : Math.min(active, rows.length - 1));
      render();
    },
    clear() {
      rows = [];
      active = 0;
      render();
    },
    select(nodes, node, follow) {
      if (!nodes.length && !chosen.size) return;
      chosen = new Set(nodes);
      element.setAttribute("aria-multiselectable", String(nodes.length > 1));
      const i = node < 0 ? -1 : rows.findIndex((row) => row.node === node);
      if (i >= 0 && follow) {
        active = i;
        if (i * ROW < element.scrollTop || (i + 1) * ROW > element.scrollTop + element.clientHeight)
          element.scrollTop = Math.max(0, (i + 0.5) * ROW - element.clientHeight / 2);
      }
      render();
    },
    focus: focusRow,
  };
}

/** The details in a group's row: its type and its size. */
export function groupDetail(group: Group): string {
  return [group.type !== group.label && group.type, plural(group.size, "node")].filter(Boolean).join(" · ");
}
