// Finds the boxes and edges in a rectangle or under a point. It is a grid of cells, each with the boxes and edges that
// touch it. Edges that touch too many cells are in a separate list.

import { TITLE } from "../../layout/placed";
import type { Route, Scene } from "./scene";

const CELL = 700; // pixels of the drawing
const MOST_CELLS = 48; // for one edge
const NEAR = 5; // screen pixels between the pointer and an edge that still count as a hit

export interface Found {
  readonly boxes: number[];
  readonly routes: number[];
}

export type Hit =
  | { readonly kind: "box"; readonly box: number }
  | { readonly kind: "title"; readonly cluster: number }
  | { readonly kind: "edge"; readonly route: number };

export class Grid {
  private readonly cells = new Map<number, Found>();
  private readonly long: number[] = []; // routes
  private readonly columns: number;
  private readonly seen: Uint32Array; // per route, then per box: the number of the last query that found it
  private question = 0;

  constructor(private readonly scene: Scene) {
    this.columns = Math.ceil(scene.width / CELL) + 2;
    this.seen = new Uint32Array(scene.routes.length + scene.places.length);
    scene.places.forEach(({ x, y, width, height }, box) => {
      for (const cell of this.over(x - 10, y, x + width + 10, y + height)) this.at(cell).boxes.push(box);
    });
    scene.routes.forEach(({ left, top, right, bottom }, i) => {
      const cells =
        (Math.floor(right / CELL) - Math.floor(left / CELL) + 1) *
        (Math.floor(bottom / CELL) - Math.floor(top / CELL) + 1);
      if (cells > MOST_CELLS) this.long.push(i);
      else for (const cell of this.over(left, top, right, bottom)) this.at(cell).routes.push(i);
    });
  }

  /** Boxes and edges that may be visible in a rectangle of the drawing, in order. */
  within(left: number, top: number, right: number, bottom: number): Found {
    const { routes, places } = this.scene;
    const question = ++this.question;
    const found: Found = { boxes: [], routes: [] };
    const add = (list: number[], i: number, offset: number): void => {
      if (this.seen[offset + i] === question) return;
      this.seen[offset + i] = question;
      list.push(i);
    };
    const touches = (route: Route): boolean =>
      route.left <= right && route.right >= left && route.top <= bottom && route.bottom >= top;
    for (const cell of this.over(left, top, right, bottom)) {
      const here = this.cells.get(cell);
      if (!here) continue;
      for (const box of here.boxes) {
        const { x, y, width, height } = places[box]!;
        if (x - 10 <= right && x + width + 10 >= left && y <= bottom && y + height >= top)
          add(found.boxes, box, routes.length);
      }
      for (const i of here.routes) if (touches(routes[i]!)) add(found.routes, i, 0);
    }
    for (const i of this.long) if (touches(routes[i]!)) found.routes.push(i);
    found.routes.sort((a, b) => a - b);
    return found;
  }

  /** What is under the pointer: a box before a title before an edge. `shown`: whether an edge is drawn. */
  hit(x: number, y: number, scale: number, shown: (route: number) => boolean): Hit | null {
    const { places, clusters, routes } = this.scene;
    const reach = NEAR / scale;
    const found = this.within(x - reach, y - reach, x + reach, y + reach);
    const box = found.boxes.find((i) => {
      const place = places[i]!;
      return x >= place.x && x <= place.x + place.width && y >= place.y && y <= place.y + place.height;
    });
    if (box !== undefined) return { kind: "box", box };
    const bar = Math.max(TITLE, 16 / scale);
    const cluster = clusters.findLastIndex(
      (place) =>
        x >= place.x && x <= place.x + place.width && y >= place.y && y <= place.y + Math.min(bar, place.height),
    );
    if (cluster >= 0) return { kind: "title", cluster };
    let [nearest, least] = [-1, reach];
    for (const i of found.routes) {
      if (!shown(i)) continue;
      const distance = distanceTo(routes[i]!.points, x, y);
      if (distance < least) [nearest, least] = [i, distance];
    }
    return nearest >= 0 ? { kind: "edge", route: nearest } : null;
  }

  private at(cell: number): Found {
    let found = this.cells.get(cell);
    if (!found) this.cells.set(cell, (found = { boxes: [], routes: [] }));
    return found;
  }

  private *over(left: number, top: number, right: number, bottom: number): Iterable<number> {
    const clamp = (v: number, most: number): number =>
      Math.max(-1, Math.min(Math.ceil(most / CELL), Math.floor(v / CELL)));
    const [x1, x2] = [clamp(left, this.scene.width), clamp(right, this.scene.width)];
    const [y1, y2] = [clamp(top, this.scene.height), clamp(bottom, this.scene.height)];
    for (let y = y1; y <= y2; y++) for (let x = x1; x <= x2; x++) yield (y + 1) * this.columns + x + 1;
  }
}

function distanceTo(points: Float32Array, x: number, y: number): number {
  if (points.length === 4) return toSegment(points[0]!, points[1]!, points[2]!, points[3]!, x, y);
  let least = Infinity;
  for (let i = 0; i + 7 < points.length; i += 6) {
    let [px, py] = [points[i]!, points[i + 1]!];
    for (let step = 1; step <= 8; step++) {
      const t = step / 8;
      const [a, b, c, d] = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t ** 3];
      const qx = a * points[i]! + b * points[i + 2]! + c * points[i + 4]! + d * points[i + 6]!;
      const qy = a * points[i + 1]! + b * points[i + 3]! + c * points[i + 5]! + d * points[i + 7]!;
      least = Math.min(least, toSegment(px, py, qx, qy, x, y));
      [px, py] = [qx, qy];
    }
  }
  return least;
}

function toSegment(x1: number, y1: number, x2: number, y2: number, x: number, y: number): number {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const length = dx * dx + dy * dy;
  const t = length ? Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / length)) : 0;
  return Math.hypot(x - x1 - t * dx, y - y1 - t * dy);
}
