// Maps a node's inputs and users to boxes and edges of the drawing.

import type { Lane } from "../../layout/hierarchy";
import { laneOf } from "../../layout/hierarchy";
import type { Graph } from "../../graph";
import { defUse } from "./defuse";
import type { Emphasis } from "./paint";
import type { Scene } from "./scene";

export function emphasis(graph: Graph, scene: Scene, node: number, transitive: boolean): Emphasis {
  const { boxOf } = scene.picture;
  const { inputs, users } = defUse(graph, node, transitive);
  const laneFor = (other: number): Lane | undefined => (graph.nodes[other] ? laneOf(graph.nodes[other]!) : undefined);
  const boxes = (nodes: ReadonlySet<number>): Set<number> =>
    new Set([...nodes].map((other) => boxOf(other, laneFor(other))));
  const selected = boxOf(node, laneFor(node));
  const [inputBoxes, userBoxes] = [boxes(inputs), boxes(users)];
  inputBoxes.delete(selected);
  userBoxes.delete(selected);
  const routes = new Map<number, "inputs" | "users">();
  scene.routes.forEach(({ from, to, kind }, i) => {
    if (kind === "alias") return;
    const reads = (to === selected || (transitive && inputBoxes.has(to))) && inputBoxes.has(from);
    const feeds = (from === selected || (transitive && userBoxes.has(from))) && userBoxes.has(to);
    if (reads) routes.set(i, "inputs");
    else if (feeds) routes.set(i, "users");
  });
  return { selected, inputs: inputBoxes, users: userBoxes, routes, others: transitive ? "dim" : "plain" };
}

/** For each box, the routes that begin or end there. */
export function touching(scene: Scene): number[][] {
  const out: number[][] = [];
  scene.routes.forEach(({ from, to }, i) => {
    (out[from] ??= []).push(i);
    (out[to] ??= []).push(i);
  });
  return out;
}
