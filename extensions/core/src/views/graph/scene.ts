// Splits a picture into two lanes and joins their layouts into one drawing. The forward is on the left and runs down,
// the backward is on the right and runs up, and saved values cross between them. The lanes are ranked separately, which
// keeps large graphs fast and readable: an edge from the first layer to the last gradient would stretch everything
// between.

import type { Group, Lane } from "../../layout/hierarchy";
import type { Picture } from "../../layout/picture";
import type { LaneInput, LaneLayout, Rectangle, Size } from "../../layout/placed";
import { TITLE } from "../../layout/placed";

const APART = 96; // pixels between the lanes
const MOST_GAP = 64; // pixels by which a gap between rows may grow to match the other lane
const LEAST_STRETCH = 30; // pixels: smaller changes are not worth it
const HEADING = 34;
const MARGIN = 20;
const TITLE_LETTER = 7.4;
const MOST_TITLE = 34; // letters

export interface Route {
  readonly from: number; // box
  readonly to: number; // box
  readonly count: number;
  readonly kind: "inside" | "across" | "quiet" | "alias";
  readonly points: Float32Array; // x, y: two ends of a line, or a start and Bézier triples
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

export interface Cluster extends Rectangle {
  readonly group: Group;
}

export interface Scene extends Size {
  readonly picture: Picture;
  readonly places: readonly Rectangle[]; // per box of the picture
  readonly clusters: readonly Cluster[]; // outer before inner
  readonly routes: readonly Route[];
  readonly headings: readonly { readonly lane: Lane; readonly x: number; readonly y: number }[];
}

export interface LaneOf {
  readonly lane: Lane;
  readonly boxes: readonly number[]; // of the picture
  readonly groups: readonly Group[];
  readonly edges: readonly number[]; // of the picture
  readonly input: LaneInput;
}

/** The title of an open group. */
export function openTitle(group: Group): string {
  const text = `▾ ${group.label}${group.type && group.type !== group.label ? `  ${group.type}` : ""}`;
  return text.length > MOST_TITLE ? `${text.slice(0, MOST_TITLE - 1)}…` : text;
}

export function lanesOf(picture: Picture, sizes: readonly Size[]): LaneOf[] {
  return (["forward", "backward"] as const).flatMap((lane) => {
    const boxes = picture.boxes.flatMap((box, i) => (box.lane === lane ? [i] : []));
    if (!boxes.length) return [];
    const place = new Int32Array(picture.boxes.length).fill(-1);
    boxes.forEach((box, i) => (place[box] = i));
    const groups = picture.open.filter((group) => group.lane === lane);
    const number = new Map(groups.map((group, i) => [group, i]));
    const clusterOf = (group: Group | null): number => (group && number.get(group)) ?? -1;
    const edges = picture.edges.flatMap(({ kind, from, to }, i) =>
      kind === "data" && place[from]! >= 0 && place[to]! >= 0 ? [i] : [],
    );
    return [
      {
        lane,
        boxes,
        groups,
        edges,
        input: {
          upward: lane === "backward" && boxes.length < picture.boxes.length,
          width: Float32Array.from(boxes, (box) => sizes[box]!.width),
          height: Float32Array.from(boxes, (box) => sizes[box]!.height),
          cluster: Int32Array.from(boxes, (box) => clusterOf(picture.boxes[box]!.parent)),
          parent: Int32Array.from(groups, (group) => clusterOf(group.parent)),
          titles: Float32Array.from(groups, (group) => TITLE_LETTER * openTitle(group).length),
          from: Int32Array.from(edges, (edge) => place[picture.edges[edge]!.from]!),
          to: Int32Array.from(edges, (edge) => place[picture.edges[edge]!.to]!),
        },
      },
    ];
  });
}

export function join(
  picture: Picture,
  sizes: readonly Size[],
  lanes: readonly LaneOf[],
  answers: readonly LaneLayout[],
): Scene {
  const layouts = evened(lanes, answers);
  const places: Rectangle[] = sizes.map((size) => ({ x: 0, y: 0, ...size }));
  const clusters: Cluster[] = [];
  const routes: Route[] = [];
  const headings: { lane: Lane; x: number; y: number }[] = [];
  const drawn = new Set<number>();
  const tallest = Math.max(0, ...layouts.map((layout) => layout.height));
  const top = MARGIN + (lanes.length > 1 ? HEADING : 0);
  let x = MARGIN;
  layouts.forEach((layout, i) => {
    const { lane, boxes, groups, edges } = lanes[i]!;
    const y = top + (tallest - layout.height) / 2;
    boxes.forEach((box, at) => (places[box] = { ...sizes[box]!, x: layout.x[at]! + x, y: layout.y[at]! + y }));
    groups.forEach((group, at) => {
      const [left, up, width, height] = layout.clusters.subarray(4 * at, 4 * at + 4) as unknown as [
        number,
        number,
        number,
        number,
      ];
      clusters.push({ group, x: left + x, y: up + y, width, height });
    });
    edges.forEach((edge, at) => {
      const { from, to, count } = picture.edges[edge]!;
      drawn.add(edge);
      const curve = layout.curves[at];
      routes.push(
        route(
          from,
          to,
          count,
          "inside",
          curve ? curve.map((v, j) => v + (j % 2 ? y : x)) : straight(places[from]!, places[to]!),
        ),
      );
    });
    if (lanes.length > 1) headings.push({ lane, x: x + layout.width / 2, y: MARGIN + 12 });
    x += layout.width + APART;
  });
  picture.edges.forEach(({ from, to, count, kind }, edge) => {
    if (drawn.has(edge)) return;
    const [a, b] = [places[from]!, places[to]!];
    if (kind === "alias") routes.push(route(from, to, count, "alias", beside(a, b)));
    else routes.push(route(from, to, count, kind === "quiet" ? "quiet" : "across", across(a, b)));
  });
  return { width: x - APART + MARGIN, height: top + tallest + MARGIN, picture, places, clusters, routes, headings };
}

function route(from: number, to: number, count: number, kind: Route["kind"], points: Float32Array): Route {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let i = 0; i < points.length; i += 2) {
    left = Math.min(left, points[i]!);
    right = Math.max(right, points[i]!);
    top = Math.min(top, points[i + 1]!);
    bottom = Math.max(bottom, points[i + 1]!);
  }
  return { from, to, count, kind, points, left, top, right, bottom };
}

/** A line from the edge of one box to the edge of the other. */
function straight(a: Rectangle, b: Rectangle): Float32Array {
  const down = a.y + a.height / 2 <= b.y + b.height / 2;
  const [y1, y2] = down ? [a.y + a.height, b.y] : [a.y, b.y + b.height];
  return Float32Array.of(a.x + a.width / 2, y1, b.x + b.width / 2, y2);
}

/** A curve from side to side, horizontal at both ends. */
function across(a: Rectangle, b: Rectangle): Float32Array {
  const rightward = a.x + a.width / 2 <= b.x + b.width / 2;
  const [x1, x2] = rightward ? [a.x + a.width, b.x] : [a.x, b.x + b.width];
  const [y1, y2] = [a.y + a.height / 2, b.y + b.height / 2];
  const bend = Math.max(40, Math.abs(x2 - x1) / 2) * (rightward ? 1 : -1);
  return Float32Array.of(x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2);
}

/**
 * A curve from right side to right side, around what is between. So alias edges differ from data edges in shape and not
 * only in colour.
 */
function beside(a: Rectangle, b: Rectangle): Float32Array {
  const [x1, x2] = [a.x + a.width, b.x + b.width];
  const [y1, y2] = [a.y + 0.75 * a.height, b.y + 0.25 * b.height];
  const bend = Math.max(x1, x2) + Math.min(120, 24 + Math.abs(y2 - y1) / 6);
  return Float32Array.of(x1, y1, bend, y1, bend, y2, x2, y2);
}

/** Adds room between the rows of the shorter lane, so that corresponding boxes of both lanes are side by side. */
function evened(lanes: readonly LaneOf[], layouts: readonly LaneLayout[]): readonly LaneLayout[] {
  if (layouts.length !== 2) return layouts;
  const index = layouts[0]!.height < layouts[1]!.height ? 0 : 1;
  const [short, tall] = [layouts[index]!, layouts[1 - index]!];
  const stretched = stretch(short, lanes[index]!.input.height, tall.height);
  return index ? [layouts[0]!, stretched] : [stretched, layouts[1]!];
}

/** Makes a layout taller by moving its rows apart. Rows keep their height, so edges still end at their boxes. */
export function stretch(layout: LaneLayout, heights: Float32Array, wanted: number): LaneLayout {
  const rows: [number, number][] = [];
  const order = Array.from(layout.y, (_, i) => i).sort((a, b) => layout.y[a]! - layout.y[b]!);
  for (const i of order) {
    const last = rows[rows.length - 1];
    const bottom = layout.y[i]! + heights[i]!;
    if (last && layout.y[i]! <= last[1]) last[1] = Math.max(last[1], bottom);
    else rows.push([layout.y[i]!, bottom]);
  }
  if (rows.length < 4 || wanted < layout.height + LEAST_STRETCH) return layout;
  const more = Math.min(MOST_GAP, (wanted - layout.height) / (rows.length - 1));
  const moved = (y: number): number => {
    let [low, high] = [0, rows.length - 1]; // the last row that begins at or above y
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (rows[middle]![0] <= y) low = middle;
      else high = middle - 1;
    }
    const [start, end] = rows[low]!;
    if (y < start) return y;
    const next = rows[low + 1];
    const part = y <= end || !next ? 0 : (y - end) / (next[0] - end);
    return y + more * (low + part);
  };
  const clusters = layout.clusters.slice();
  for (let i = 0; i < clusters.length; i += 4) {
    const top = moved(clusters[i + 1]!);
    clusters[i + 3] = moved(clusters[i + 1]! + clusters[i + 3]!) - top;
    // The title stays beside the contents of its group.
    clusters[i + 1] = Math.max(top, moved(clusters[i + 1]! + TITLE) - TITLE);
    clusters[i + 3]! -= clusters[i + 1]! - top;
  }
  return {
    width: layout.width,
    height: layout.height + more * (rows.length - 1),
    x: layout.x,
    y: layout.y.map(moved),
    clusters,
    curves: layout.curves.map((curve) => curve && smoothed(curve.map((v, i) => (i % 2 ? moved(v) : v)))),
  };
}

/** Removes the kinks that moved points cause: where two pieces meet, puts their handles on one line. */
function smoothed(points: Float32Array): Float32Array {
  for (let i = 6; i + 7 < points.length; i += 6) {
    const [x, y] = [points[i]!, points[i + 1]!];
    const [dx, dy] = [points[i + 2]! - points[i - 2]!, points[i + 3]! - points[i - 1]!];
    const length = Math.hypot(dx, dy);
    if (length < 1) continue;
    for (const [at, sign] of [
      [i - 2, -1],
      [i + 2, 1],
    ] as const) {
      const reach = (sign * Math.hypot(points[at]! - x, points[at + 1]! - y)) / length;
      points[at] = x + reach * dx;
      points[at + 1] = y + reach * dy;
    }
  }
  return points;
}

/** The place of a group in the drawing, open or closed. */
export function placeOf(scene: Scene, id: string): Rectangle | undefined {
  const box = scene.picture.boxes.findIndex((other) => other.id === id);
  return box >= 0 ? scene.places[box] : scene.clusters.find(({ group }) => group.id === id);
}
