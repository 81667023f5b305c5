// A layout without a library, a worker or dummy nodes. The longest path gives the row of a box, and the mean position
// of its neighbours gives its order in the row. Long edges pass the rows in their way through gaps (around.ts). 20,000
// nodes take a fraction of a second. It is used for large pictures and if graphviz cannot run.
//
// Clusters are laid out from the inside out: the contents of a cluster are placed, and then the cluster counts as a box
// of that size. A "unit" is a box, or a cluster in its parent; unit `boxes + c` is cluster c.

import { around, type DrawnRow } from "./around";
import { CLUSTER_PAD, type LaneInput, type LaneLayout, RANK_GAP, TITLE } from "./placed";

const GAP_X = 18;
const MARGIN = 16;
const GAP_Y = RANK_GAP + 8;
const WIDEST_ROW = 2400; // pixels: a longer row is split, unless the whole picture is that wide
const SWEEPS = 4;

interface Sheet {
  readonly width: Float32Array; // per unit
  readonly height: Float32Array;
  readonly x: Float32Array; // per unit: within its container
  readonly y: Float32Array;
}

export function layered(lane: LaneInput): LaneLayout {
  const boxes = lane.width.length;
  const units = boxes + lane.parent.length;
  const container = new Int32Array(units); // cluster around each unit, -1 for none
  container.set(lane.cluster);
  container.set(lane.parent, boxes);
  const depth = new Int32Array(lane.parent.length);
  lane.parent.forEach((parent, i) => (depth[i] = parent < 0 ? 1 : depth[parent]! + 1));
  const inside = new Map<number, number[]>(); // container -> its units
  for (let unit = 0; unit < units; unit++) push(inside, container[unit]!, unit);
  const edges = new Map<number, number[]>(); // container -> from, to, from, to, ... among its units
  lane.from.forEach((from, i) => lift(from, lane.to[i]!, container, depth, boxes, edges));
  const sheet: Sheet = {
    width: new Float32Array(units),
    height: new Float32Array(units),
    x: new Float32Array(units),
    y: new Float32Array(units),
  };
  sheet.width.set(lane.width);
  sheet.height.set(lane.height);
  const rank = new Ranker(units);
  let whole = { width: 0, height: 0 };
  const rows = new Map<number, DrawnRow[]>(); // by the unit of the container; at first from its top
  for (let cluster = lane.parent.length - 1; cluster >= -1; cluster--) {
    const { rows: drawn, ...own } = place(
      inside.get(cluster) ?? [],
      edges.get(cluster) ?? [],
      sheet,
      rank,
      lane.upward,
      cluster < 0 ? MARGIN : CLUSTER_PAD,
      cluster < 0 ? MARGIN : TITLE,
    );
    rows.set(cluster < 0 ? -1 : boxes + cluster, drawn);
    if (cluster < 0) whole = own;
    else {
      sheet.width[boxes + cluster] = Math.max(own.width, lane.titles[cluster]! + 2 * CLUSTER_PAD);
      sheet.height[boxes + cluster] = own.height;
    }
  }
  const clusters = new Float32Array(4 * lane.parent.length);
  for (let cluster = 0; cluster < lane.parent.length; cluster++) {
    // outer first, so that the parent's place is known
    const around = lane.parent[cluster]!;
    const unit = boxes + cluster;
    if (around >= 0) {
      sheet.x[unit]! += sheet.x[boxes + around]!;
      sheet.y[unit]! += sheet.y[boxes + around]!;
    }
    clusters.set([sheet.x[unit]!, sheet.y[unit]!, sheet.width[unit]!, sheet.height[unit]!], 4 * cluster);
  }
  for (let box = 0; box < boxes; box++) {
    const around = container[box]!;
    if (around < 0) continue;
    sheet.x[box]! += sheet.x[boxes + around]!;
    sheet.y[box]! += sheet.y[boxes + around]!;
  }
  const rowOf = new Int32Array(units);
  for (const [unit, drawn] of rows) {
    const above = unit < 0 ? 0 : sheet.y[unit]!;
    rows.set(
      unit,
      drawn.map(({ units: inRow, top, bottom }, i) => {
        for (const one of inRow) rowOf[one] = i;
        return { units: inRow, top: top + above, bottom: bottom + above };
      }),
    );
  }
  const groups = container.map((cluster) => (cluster < 0 ? -1 : boxes + cluster));
  const curves = around(lane.from, lane.to, { ...sheet, container: groups, rows, rowOf });
  return { ...whole, x: sheet.x.slice(0, boxes), y: sheet.y.slice(0, boxes), clusters, curves };
}

function push(lists: Map<number, number[]>, key: number, ...items: number[]): void {
  const list = lists.get(key);
  if (list) list.push(...items);
  else lists.set(key, items);
}

/** Maps an edge between boxes to the units that contain them in their innermost common container. */
function lift(
  from: number,
  to: number,
  container: Int32Array,
  depth: Int32Array,
  boxes: number,
  edges: Map<number, number[]>,
): void {
  let [a, b] = [from, to];
  const level = (unit: number): number => (container[unit]! < 0 ? 0 : depth[container[unit]!]!);
  while (level(a) > level(b)) a = boxes + container[a]!;
  while (level(b) > level(a)) b = boxes + container[b]!;
  while (container[a] !== container[b]) {
    a = boxes + container[a]!;
    b = boxes + container[b]!;
  }
  if (a !== b) push(edges, container[a]!, a, b);
}

/** Places the units of one container; returns the container's size. */
function place(
  units: readonly number[],
  edges: readonly number[],
  sheet: Sheet,
  ranker: Ranker,
  upward: boolean,
  pad: number,
  top: number,
): { width: number; height: number; rows: DrawnRow[] } {
  const rows = ranker.rows(units, edges);
  const neighbours = ranker.neighbours;
  const center = ranker.center;
  const spread = (row: readonly number[]): void => {
    let x = -(row.reduce((sum, unit) => sum + sheet.width[unit]! + GAP_X, -GAP_X) / 2);
    for (const unit of row) {
      center[unit] = x + sheet.width[unit]! / 2;
      x += sheet.width[unit]! + GAP_X;
    }
  };
  rows.forEach(spread);
  const wish = ranker.wish;
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      if (row.length < 2) continue;
      for (const unit of row) {
        const around = neighbours.get(unit);
        wish[unit] = around ? around.reduce((sum, other) => sum + center[other]!, 0) / around.length : center[unit]!;
      }
      row.sort((a, b) => wish[a]! - wish[b]!);
      spread(row);
    }
  }
  const area = units.reduce((sum, unit) => sum + (sheet.width[unit]! + GAP_X) * (sheet.height[unit]! + GAP_Y), 0);
  const broken = rows.flatMap((row) => brokenRow(row, sheet.width, Math.max(WIDEST_ROW, 2 * Math.sqrt(area))));
  broken.forEach(spread);
  let left = 0;
  for (const unit of units) left = Math.min(left, center[unit]! - sheet.width[unit]! / 2);
  let y = top;
  let width = 0;
  const drawn: DrawnRow[] = [];
  for (const row of upward ? broken.reverse() : broken) {
    let tall = 0;
    for (const unit of row) tall = Math.max(tall, sheet.height[unit]!);
    for (const unit of row) {
      sheet.x[unit] = center[unit]! - sheet.width[unit]! / 2 - left + pad;
      sheet.y[unit] = y + (tall - sheet.height[unit]!) / 2;
      width = Math.max(width, sheet.x[unit]! + sheet.width[unit]! + pad);
    }
    drawn.push({ units: row, top: y, bottom: y + tall });
    y += tall + GAP_Y;
  }
  return { width, height: y - (broken.length ? GAP_Y : 0) + pad, rows: drawn };
}

/** Splits a row into rows of at most `widest` pixels. */
function brokenRow(row: number[], width: Float32Array, widest: number): number[][] {
  const out: number[][] = [[]];
  let used = 0;
  for (const unit of row) {
    if (used > widest) {
      out.push([]);
      used = 0;
    }
    out[out.length - 1]!.push(unit);
    used += width[unit]! + GAP_X;
  }
  return out;
}

/** Rows by longest path. Its arrays serve all containers of a layout, since a unit is in one of them. */
class Ranker {
  readonly center: Float32Array;
  readonly wish: Float32Array;
  neighbours = new Map<number, number[]>();
  private readonly row: Int32Array;

  constructor(units: number) {
    this.center = new Float32Array(units);
    this.wish = new Float32Array(units);
    this.row = new Int32Array(units).fill(-2); // -2: not visited; -1: in progress
  }

  rows(units: readonly number[], edges: readonly number[]): number[][] {
    const { row } = this;
    const inputs = new Map<number, number[]>();
    this.neighbours = new Map();
    for (let i = 0; i < edges.length; i += 2) {
      const [from, to] = [edges[i]!, edges[i + 1]!];
      push(inputs, to, from);
      push(this.neighbours, from, to);
      push(this.neighbours, to, from);
    }
    // Closing modules can make cycles; an edge that would close one is left out of the ranking.
    const stack: number[] = [];
    for (const unit of units) {
      stack.push(unit);
      while (stack.length) {
        const at = stack[stack.length - 1]!;
        if (row[at] === -2) {
          row[at] = -1;
          for (const input of inputs.get(at) ?? []) if (row[input] === -2) stack.push(input);
        } else {
          stack.pop();
          if (row[at] !== -1) continue;
          let most = -1;
          for (const input of inputs.get(at) ?? []) most = Math.max(most, row[input]!);
          row[at] = most + 1;
        }
      }
    }
    // A box that reads nothing (a parameter) is placed just before its first reader, not in one very long first row.
    const first = new Map<number, number>();
    for (let i = 0; i < edges.length; i += 2) {
      const reader = row[edges[i + 1]!]!;
      first.set(edges[i]!, Math.min(first.get(edges[i]!) ?? Infinity, reader));
    }
    const out: number[][] = [];
    for (const unit of units) {
      const reader = inputs.has(unit) ? undefined : first.get(unit);
      (out[reader === undefined ? row[unit]! : Math.max(0, reader - 1)] ??= []).push(unit);
    }
    return out.filter(Boolean);
  }
}
