// Lays out a lane whose boxes form a chain, in which each box is read only by the next, as in a network of closed
// blocks. The only good picture of it is a column, and graphviz draws one too. This layout returns graphviz's places to
// the pixel, before a worker could start.

import { GAP_X, titleWidth } from "./dot";
import { CLUSTER_PAD, type LaneInput, type LaneLayout, RANK_GAP } from "./placed";

const BESIDE = GAP_X / 2; // pixels between a cluster and its surroundings
const TITLE = 24.8; // pixels: graphviz's line of 14 points, and its padding

/** Null if the lane is not a chain. */
export function column(lane: LaneInput): LaneLayout | null {
  const order = inOrder(lane);
  const around = order && nests(lane, order);
  return around && placed(lane, order, around);
}

/** The boxes from top to bottom; null unless all are on one path without side paths. */
function inOrder({ width, from, to, upward }: LaneInput): number[] | null {
  const boxes = width.length;
  if (!boxes || from.length !== boxes - 1) return null;
  const next = new Int32Array(boxes).fill(-1);
  const isRead = new Uint8Array(boxes); // whether the box reads another
  for (let i = 0; i < from.length; i++) {
    if (next[from[i]!] !== -1 || isRead[to[i]!]) return null;
    next[from[i]!] = to[i]!;
    isRead[to[i]!] = 1;
  }
  const order: number[] = [];
  for (let box = isRead.indexOf(0); box >= 0; box = next[box]!) order.push(box);
  if (order.length !== boxes) return null; // a cycle, and a shorter path beside it
  return upward ? order.reverse() : order;
}

/**
 * For each box in order, the clusters around it, outer first; null if the path re-enters a cluster that it left.
 */
function nests(lane: LaneInput, order: readonly number[]): number[][] | null {
  const left = new Set<number>();
  let before: readonly number[] = [];
  const out: number[][] = [];
  for (const box of order) {
    const here: number[] = [];
    for (let cluster = lane.cluster[box]!; cluster >= 0; cluster = lane.parent[cluster]!) here.unshift(cluster);
    if (here.some((cluster) => left.has(cluster))) return null;
    for (const cluster of before) if (!here.includes(cluster)) left.add(cluster);
    out.push(here);
    before = here;
  }
  return out;
}

function placed(lane: LaneInput, order: readonly number[], around: readonly number[][]): LaneLayout {
  const [boxes, count] = [lane.width.length, lane.parent.length];
  const wide = Float32Array.from(lane.titles, (title) => titleWidth(title)); // per cluster
  const hold = (cluster: number, width: number): void => {
    if (cluster >= 0) wide[cluster] = Math.max(wide[cluster]!, width + 2 * CLUSTER_PAD);
  };
  lane.cluster.forEach((cluster, box) => hold(cluster, lane.width[box]!));
  // Inner clusters first.
  for (let cluster = count - 1; cluster >= 0; cluster--) hold(lane.parent[cluster]!, wide[cluster]!);
  const width = Math.max(...lane.width, ...wide.map((own) => own + 2 * BESIDE));
  const [x, y, clusters] = [new Float32Array(boxes), new Float32Array(boxes), new Float32Array(4 * count)];
  let bottom = 0; // of the last box
  let before: readonly number[] = [];
  const close = (open: readonly number[], here: readonly number[]): number => {
    let depth = 0;
    for (const cluster of [...open].reverse()) {
      if (here.includes(cluster)) break;
      depth++;
      clusters[4 * cluster + 3] = bottom + depth * CLUSTER_PAD - clusters[4 * cluster + 1]!;
    }
    return depth;
  };
  order.forEach((box, at) => {
    const here = around[at]!;
    const entered = here.filter((cluster) => !before.includes(cluster));
    const depth = close(before, here);
    const needed =
      depth * CLUSTER_PAD + entered.length * (TITLE + CLUSTER_PAD) + (depth || entered.length ? BESIDE : 0);
    const top = bottom + (at ? Math.max(RANK_GAP, needed) : needed);
    entered.forEach((cluster, i) => {
      clusters.set(
        [(width - wide[cluster]!) / 2, top - (entered.length - i) * (TITLE + CLUSTER_PAD), wide[cluster]!],
        4 * cluster,
      );
    });
    x[box] = (width - lane.width[box]!) / 2;
    y[box] = top;
    bottom = top + lane.height[box]!;
    before = here;
  });
  const depth = close(before, []);
  return { width, height: bottom + (depth ? depth * CLUSTER_PAD + BESIDE : 0), x, y, clusters, curves: [] };
}
