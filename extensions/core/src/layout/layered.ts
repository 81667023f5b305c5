// A layout that needs no library, no worker and no dummy nodes: rows by longest path, order in a row by the mean
// position of the neighbours. Long edges cross boxes, but 20,000 nodes take a fraction of a second, where layouts
// that route every long edge overflow. Used for large pictures and where graphviz can't run.

import type { LaneInput, LaneLayout, Rectangle } from "./placed";

const GAP_X = 18;
const MARGIN = 16;

export function layered(lane: LaneInput): LaneLayout {
  const rowOf = rows(lane);
  const byRow: string[][] = [];
  for (const box of lane.boxes) (byRow[rowOf.get(box.id)!] ??= []).push(box.id);
  const sizes = new Map(lane.boxes.map((box) => [box.id, box.size]));
  const neighbours = new Map<string, string[]>(lane.boxes.map((box) => [box.id, []]));
  for (const { from, to } of lane.edges) {
    neighbours.get(from)?.push(to);
    neighbours.get(to)?.push(from);
  }
  const center = new Map<string, number>();
  const place = (row: string[]): void => {
    const total = row.reduce((sum, id) => sum + sizes.get(id)!.width + GAP_X, -GAP_X);
    let x = -total / 2;
    for (const id of row) {
      const { width } = sizes.get(id)!;
      center.set(id, x + width / 2);
      x += width + GAP_X;
    }
  };
  const used = byRow.filter(Boolean);
  used.forEach(place);
  for (let sweep = 0; sweep < 4; sweep++) {
    for (const row of sweep % 2 ? [...used].reverse() : used) {
      const wish = new Map(row.map((id) => {
        const around = neighbours.get(id)!;
        return [id, around.length ? around.reduce((sum, other) => sum + center.get(other)!, 0) / around.length : center.get(id)!];
      }));
      row.sort((a, b) => wish.get(a)! - wish.get(b)!);
      place(row);
    }
  }
  let left = 0;
  for (const [id, x] of center) left = Math.min(left, x - sizes.get(id)!.width / 2);
  const boxes = new Map<string, Rectangle>();
  let y = MARGIN;
  let width = 0;
  for (const row of lane.upward ? [...used].reverse() : used) {
    let tall = 0;
    for (const id of row) {
      const size = sizes.get(id)!;
      const x = center.get(id)! - size.width / 2 - left + MARGIN;
      boxes.set(id, { x, y, ...size });
      width = Math.max(width, x + size.width + MARGIN);
      tall = Math.max(tall, size.height);
    }
    y += tall + lane.rankGap + 8;
  }
  const edges = lane.edges.flatMap(({ from, to }) => {
    const [a, b] = [boxes.get(from), boxes.get(to)];
    return a && b ? [{ from, to, path: straight(a, b) }] : [];
  });
  return { width, height: y - lane.rankGap - 8 + MARGIN, boxes, clusters: new Map(), edges };
}

function rows(lane: LaneInput): Map<string, number> {
  const row = new Map<string, number>();
  const inputs = new Map<string, string[]>();
  for (const box of lane.boxes) {
    inputs.set(box.id, []);
  }
  for (const { from, to } of lane.edges) if (inputs.has(from)) inputs.get(to)?.push(from);
  // Closing modules can make cycles; an edge that would close one is left out of the ranking.
  for (const { id } of lane.boxes) {
    const stack = [id];
    while (stack.length) {
      const at = stack[stack.length - 1]!;
      if (row.get(at) === undefined) {
        row.set(at, -1);
        for (const input of inputs.get(at)!) if (row.get(input) === undefined) stack.push(input);
      } else {
        stack.pop();
        if (row.get(at) === -1) row.set(at, 1 + Math.max(-1, ...inputs.get(at)!.map((input) => row.get(input)!)));
      }
    }
  }
  // What reads nothing (a parameter) stands just before its first reader, not in one endless first row.
  const first = new Map<string, number>();
  for (const { from, to } of lane.edges) first.set(from, Math.min(first.get(from) ?? Infinity, row.get(to) ?? Infinity));
  for (const [id, before] of inputs) {
    const reader = first.get(id);
    if (!before.length && reader !== undefined && Number.isFinite(reader)) row.set(id, Math.max(0, reader - 1));
  }
  return row;
}

/** From the edge of one box to the edge of the other. */
function straight(a: Rectangle, b: Rectangle): string {
  const down = a.y + a.height / 2 <= b.y + b.height / 2;
  const [y1, y2] = down ? [a.y + a.height, b.y] : [a.y, b.y + b.height];
  return `M${(a.x + a.width / 2).toFixed(1)},${y1.toFixed(1)}L${(b.x + b.width / 2).toFixed(1)},${y2.toFixed(1)}`;
}
