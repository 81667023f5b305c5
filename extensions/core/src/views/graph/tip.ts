// The tooltip of what is under the pointer.

import { plural } from "../../format";
import { markWords } from "./labels";
import type { Graph } from "../../graph";
import type { Hit } from "./grid";
import type { Drawn } from "./paint";

/** Shows the tip beside a point of the view, if it has a text. */
export function placeTip(tip: HTMLElement, x: number, y: number, view: { width: number; height: number }): void {
  tip.hidden = !tip.textContent;
  if (tip.hidden) return;
  tip.style.left = `${Math.max(4, Math.min(x + 14, view.width - tip.offsetWidth - 6))}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > view.height ? Math.max(4, y - tip.offsetHeight - 10) : y + 18}px`;
}

export function tipOf(hit: Hit, drawn: Drawn, graph: Graph): string {
  const { scene, labels, colouring } = drawn;
  if (hit.kind === "title")
    return `${scene.clusters[hit.cluster]!.group.path || scene.clusters[hit.cluster]!.group.label}: click to close`;
  if (hit.kind === "edge") {
    const { from, to, count, kind } = scene.routes[hit.route]!;
    const ends = `${labels[from]!.title} → ${labels[to]!.title}`;
    if (kind === "alias")
      return `${ends}: ${count === 1 ? "they share memory" : `${count} pairs of values share memory`}`;
    return `${ends}: ${plural(count, "value")}${kind === "across" ? ", from the forward to the backward" : ""}`;
  }
  const box = scene.picture.boxes[hit.box]!;
  const { title, detail } = labels[hit.box]!;
  const tint = colouring.tints[hit.box];
  const said = colouring.said?.[hit.box];
  const category = !said && tint && colouring.legend.find(({ colour }) => colour === tint.colour)?.text;
  const node = graph.nodes[box.node];
  const source = node?.source?.code;
  return [
    box.group
      ? `${box.group.path || box.group.label} ${detail}: click to open`
      : `${node && node.op === "f" ? `${node.name} = ${node.target}` : title}  ${detail}`,
    source,
    said,
    category && (box.group && !colouring.ramp ? `mostly ${category}` : category),
    ...markWords(box.marks),
  ]
    .filter(Boolean)
    .join("\n");
}
