// Counts what no layout should have.

import type { LaneInput, LaneLayout } from "../src/layout/placed";

/** How many edges run under a box that is neither of their ends. */
export function crossings(lane: LaneInput, { x, y, curves }: LaneLayout): number {
  const inside = (box: number, px: number, py: number): boolean =>
    px > x[box]! + 1 && px < x[box]! + lane.width[box]! - 1 && py > y[box]! + 1 && py < y[box]! + lane.height[box]! - 1;
  let count = 0;
  lane.from.forEach((from, i) => {
    const to = lane.to[i]!;
    const down = y[from]! < y[to]!;
    const middle = (box: number): number => x[box]! + lane.width[box]! / 2;
    const edge = (box: number, bottom: boolean): number => y[box]! + (bottom ? lane.height[box]! : 0);
    const [x1, y1, x2, y2] = [middle(from), edge(from, down), middle(to), edge(to, !down)];
    const points = curves[i] ?? [x1, y1, x1, y1, x2, y2, x2, y2];
    for (let at = 0; at + 7 < points.length; at += 6) {
      const p = points.slice(at, at + 8);
      for (let t = 0; t <= 1; t += 1 / 32) {
        const s = 1 - t;
        const on = (k: number): number =>
          s ** 3 * p[k]! + 3 * s * s * t * p[k + 2]! + 3 * s * t * t * p[k + 4]! + t ** 3 * p[k + 6]!;
        if (lane.width.some((_, box) => box !== from && box !== to && inside(box, on(0), on(1)))) {
          count++;
          return;
        }
      }
    }
  });
  return count;
}
