// Drawings beside each other: what they tell each other, and how one opens its modules and moves its camera as the reader
// does in another. Two drawings have the same nodes at other places.
// So each box that both have says where the middle of the one view is in the other drawing, and near boxes count more
// than far ones. The result changes smoothly while the reader pans.

import { partnersOf } from "../../code/nodes";
import type { Graph } from "../../graph";
import type { Hierarchy } from "../../layout/hierarchy";
import type { Rectangle } from "../../layout/placed";
import type { State } from "../../state";
import type { Camera } from "./camera";
import type { Wish } from "./controls";
import type { Grid } from "./grid";
import type { Scene } from "./scene";
import type { Surface } from "./surface";

const MOST_BOXES = 400; // that are looked at
const NEAR = 0.01; // squared distance within which all boxes count about the same; the edge of the view is at 1

/** What a drawing tells those beside it. */
export interface Peers<D> {
  grouped(by: D): void; // its graph is grouped into modules, and will be laid out
  opened(by: D, group: string): void; // a module was opened or closed
  steered(by: D, zoom: number, gentle: boolean): void; // the reader moved the camera
  fitted(by: D): void; // the reader wants the whole drawing
  wished(by: D, what: Wish): void; // the reader chose another setting
  everything(open: boolean): void; // the reader opens or closes all modules of all drawings
}

/** The part of a drawing that others follow. */
export interface Leading {
  readonly state: State;
  readonly surface: Surface;
  readonly shown: Graph | null;
  readonly hierarchy: Hierarchy | null;
  readonly drawn: { readonly scene: Scene; readonly grid: Grid } | null;
  readonly open: Set<string>;
}

/** Opens and closes the modules that both drawings have as in `from`; returns whether any changed. */
export function openLike(from: Leading, to: Leading): boolean {
  const [there, here] = [from.hierarchy, to.hierarchy];
  if (!there || !here) return false;
  const [model, open] = [from.open, to.open];
  const differ = [...here.groups.keys()].filter((id) => there.groups.has(id) && open.has(id) !== model.has(id));
  for (const id of differ) if (!open.delete(id)) open.add(id);
  return differ.length > 0;
}

/** Moves the camera of `to` to what `from` shows. */
export function steerLike(from: Leading, to: Leading, zoom: number, gentle: boolean): void {
  if (!from.drawn || !to.drawn || !from.shown || !to.shown) return;
  const { recording, compilation } = from.state;
  const partners = partnersOf(recording, from.shown, to.shown, compilation.id === to.state.compilation.id);
  // Where the camera is going to be, not where an animation has it.
  const window = ({ surface }: Leading): Window => ({ ...surface.view, ...surface.hand.get() });
  to.surface.move(inStep(window(from), from.drawn, window(to), to.drawn.scene, partners, zoom), gentle);
}

type Window = Camera & { readonly width: number; readonly height: number };

/**
 * The camera of `to` that shows what `from` shows. `partners`: for a node of `from`'s graph, the node of the other one.
 * `zoom` multiplies the scale.
 */
export function inStep(
  from: Window,
  { scene, grid }: { readonly scene: Scene; readonly grid: Grid },
  to: Window,
  there: Scene,
  partners: ReadonlyMap<number, number>,
  zoom: number,
): Camera {
  const [halfWidth, halfHeight] = [from.width / 2 / from.scale, from.height / 2 / from.scale];
  const [x, y] = [from.x + halfWidth, from.y + halfHeight];
  const places = placesOf(there);
  const { boxes } = grid.within(x - halfWidth, y - halfHeight, x + halfWidth, y + halfHeight);
  const step = Math.ceil(boxes.length / MOST_BOXES);
  let [all, sumX, sumY] = [0, 0, 0];
  for (let i = 0; i < boxes.length; i += step) {
    const { id, group, node, lane } = scene.picture.boxes[boxes[i]!]!;
    const partner = group ? undefined : partners.get(node);
    const other = group
      ? places.get(id)
      : partner === undefined
        ? undefined
        : there.places[there.picture.boxOf(partner, lane)];
    if (!other) continue;
    const place = scene.places[boxes[i]!]!;
    const [nearX, nearY] = [within(x, place.x, place.width), within(y, place.y, place.height)];
    const distance = Math.max(Math.abs(x - nearX) / halfWidth, Math.abs(y - nearY) / halfHeight);
    if (distance >= 1) continue;
    const weight = (1 - distance) ** 2 / (distance ** 2 + NEAR);
    all += weight;
    sumX += weight * (other.x + ((nearX - place.x) / place.width) * other.width + x - nearX);
    sumY += weight * (other.y + ((nearY - place.y) / place.height) * other.height + y - nearY);
  }
  const scale = to.scale * zoom;
  const [middleX, middleY] = all
    ? [sumX / all, sumY / all]
    : [to.x + to.width / 2 / to.scale, to.y + to.height / 2 / to.scale];
  return { scale, x: middleX - to.width / 2 / scale, y: middleY - to.height / 2 / scale };
}

function within(at: number, start: number, size: number): number {
  return Math.max(start, Math.min(start + size, at));
}

const known = new WeakMap<Scene, Map<string, Rectangle>>();

/** The places of a scene's modules, open or closed. */
function placesOf(scene: Scene): ReadonlyMap<string, Rectangle> {
  let places = known.get(scene);
  if (!places) {
    known.set(scene, (places = new Map()));
    for (const cluster of scene.clusters) places.set(cluster.group.id, cluster);
    scene.picture.boxes.forEach(({ id, group }, i) => group && places!.set(id, scene.places[i]!));
  }
  return places;
}
