// From a picture to two lanes and back: forward on the left running down, backward on the right running up beside
// it, and what the forward saves for the backward drawn across. Ranking the lanes apart is what keeps large graphs
// fast and readable: an edge from the first layer to the last gradient would stretch everything between.

import type { Group, Lane, Picture } from "../../layout/hierarchy";
import type { LaneInput, LaneLayout, Rectangle, Size } from "../../layout/placed";

const APART = 96; // pixels between the lanes
const MOST_GAP = 90;
const HEADING = 34;
const MARGIN = 20;

/** What stands on an open module. */
export function openTitle(group: Group): string {
  return `▾ ${group.label}${group.type && group.type !== group.label ? `  ${group.type}` : ""}`;
}

export interface Route {
  readonly from: string;
  readonly to: string;
  readonly count: number;
  readonly kind: "inside" | "across" | "quiet";
  readonly path: string;
  readonly x: number; // by how much the path's own coordinates are moved
  readonly y: number;
}

export interface Drawing extends Size {
  readonly boxes: ReadonlyMap<string, Rectangle>;
  readonly clusters: ReadonlyMap<string, Rectangle>;
  readonly routes: readonly Route[];
  readonly headings: readonly { readonly lane: Lane; readonly x: number; readonly y: number }[];
}

export function lanesOf(picture: Picture, sizes: ReadonlyMap<string, Size>): { lane: Lane; input: LaneInput }[] {
  const laneOf = new Map(picture.boxes.map((box) => [box.id, box.lane]));
  return (["forward", "backward"] as const).flatMap((lane) => {
    const boxes = picture.boxes.filter((box) => box.lane === lane);
    if (!boxes.length) return [];
    const cluster = (parent: { id: string; parent: unknown }): string => (parent.parent ? parent.id : "");
    return [{
      lane,
      input: {
        upward: lane === "backward" && boxes.length < picture.boxes.length,
        boxes: boxes.map((box) => ({ id: box.id, size: sizes.get(box.id)!, cluster: cluster(box.parent) })),
        clusters: picture.open.filter((group) => group.lane === lane).map((group) => ({ id: group.id, parent: cluster(group.parent!), letters: openTitle(group).length })),
        rankGap: 26,
        edges: picture.edges.filter((edge) => !edge.quiet && laneOf.get(edge.from) === lane && laneOf.get(edge.to) === lane),
      },
    }];
  });
}

export function join(picture: Picture, lanes: readonly { lane: Lane }[], layouts: readonly LaneLayout[]): Drawing {
  const boxes = new Map<string, Rectangle>();
  const clusters = new Map<string, Rectangle>();
  const routes: Route[] = [];
  const headings: { lane: Lane; x: number; y: number }[] = [];
  const count = new Map(picture.edges.map((edge) => [`${edge.from}\n${edge.to}`, edge.count]));
  const tallest = Math.max(0, ...layouts.map((layout) => layout.height));
  const top = MARGIN + (lanes.length > 1 ? HEADING : 0);
  let x = MARGIN;
  layouts.forEach((layout, i) => {
    const y = top + (tallest - layout.height) / 2;
    for (const [id, box] of layout.boxes) boxes.set(id, { ...box, x: box.x + x, y: box.y + y });
    for (const [id, box] of layout.clusters) clusters.set(id, { ...box, x: box.x + x, y: box.y + y });
    for (const { from, to, path } of layout.edges) routes.push({ from, to, path, x, y, kind: "inside", count: count.get(`${from}\n${to}`) ?? 1 });
    if (lanes.length > 1) headings.push({ lane: lanes[i]!.lane, x: x + layout.width / 2, y: MARGIN + 12 });
    x += layout.width + APART;
  });
  const drawn = new Set(routes.map((route) => `${route.from}\n${route.to}`));
  for (const edge of picture.edges) {
    const [a, b] = [boxes.get(edge.from), boxes.get(edge.to)];
    if (a && b && !drawn.has(`${edge.from}\n${edge.to}`)) routes.push({ from: edge.from, to: edge.to, count: edge.count, x: 0, y: 0, kind: edge.quiet ? "quiet" : "across", path: across(a, b) });
  }
  return { width: x - APART + MARGIN, height: top + tallest + MARGIN, boxes, clusters, routes, headings };
}

/**
 * The shorter of two lanes with more room between its ranks, so that what belongs together stands side by side; null
 * where they are of a height already.
 */
export function evened(lanes: readonly { input: LaneInput }[], layouts: readonly LaneLayout[]): { index: number; input: LaneInput } | null {
  if (layouts.length !== 2) return null;
  const index = layouts[0]!.height < layouts[1]!.height ? 0 : 1;
  const [short, tall] = [layouts[index]!, layouts[1 - index]!];
  const ranks = new Set([...short.boxes.values()].map((box) => Math.round(box.y + box.height / 2))).size;
  if (ranks < 4 || tall.height < 1.08 * short.height) return null;
  const { input } = lanes[index]!;
  const rankGap = Math.min(MOST_GAP, input.rankGap + (tall.height - short.height) / (ranks - 1));
  return { index, input: { ...input, rankGap } };
}

/** From side to side, leaving and arriving level. */
function across(a: Rectangle, b: Rectangle): string {
  const rightward = a.x + a.width / 2 <= b.x + b.width / 2;
  const [x1, x2] = rightward ? [a.x + a.width, b.x] : [a.x, b.x + b.width];
  const [y1, y2] = [a.y + a.height / 2, b.y + b.height / 2];
  const bend = Math.max(40, Math.abs(x2 - x1) / 2) * (rightward ? 1 : -1);
  return `M${x1.toFixed(1)},${y1.toFixed(1)}C${(x1 + bend).toFixed(1)},${y1.toFixed(1)} ${(x2 - bend).toFixed(1)},${y2.toFixed(1)} ${x2.toFixed(1)},${y2.toFixed(1)}`;
}
