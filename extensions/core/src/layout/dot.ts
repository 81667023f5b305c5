// A lane as a DOT text, and graphviz's answer as rectangles and paths. Boxes are named by number, so nothing from
// a recording ever enters the text.

import type { LaneInput, LaneLayout, Rectangle } from "./placed";

const POINTS = 72; // graphviz: sizes in inches, positions in points; one point is drawn as one pixel
const MOST_LETTERS = 34;
const ROUTED = 160; // up to so many boxes edges are routed around boxes; beyond, straight lines keep it fast

export function toDot(lane: LaneInput): string {
  const number = new Map(lane.boxes.map((box, i) => [box.id, i]));
  const inside = indicesBy(lane.boxes.map((box) => box.cluster));
  const below = indicesBy(lane.clusters.map((cluster) => cluster.parent));
  const out = [
    "digraph {",
    `graph [rankdir=${lane.upward ? "BT" : "TB"} nodesep=0.22 ranksep=${(lane.rankGap / POINTS).toFixed(3)} splines=${lane.boxes.length <= ROUTED} margin=0 ` +
      "nslimit=1 nslimit1=1 mclimit=0.1 newrank=false];",
    'node [shape=box fixedsize=true label=""];',
    "edge [arrowhead=none];",
  ];
  const body = (cluster: string): void => {
    for (const i of inside.get(cluster) ?? []) {
      const { size } = lane.boxes[i]!;
      out.push(`n${i} [width=${(size.width / POINTS).toFixed(3)} height=${(size.height / POINTS).toFixed(3)}];`);
    }
    for (const i of below.get(cluster) ?? []) {
      // The title's place is kept free at the top, which is the bottom to a graph that is drawn upward.
      const title = "n".repeat(Math.max(1, Math.min(MOST_LETTERS, lane.clusters[i]!.letters)));
      out.push(`subgraph cluster_${i} { margin=12; label="${title}"; labelloc=${lane.upward ? "b" : "t"}; fontsize=14;`);
      body(lane.clusters[i]!.id);
      out.push("}");
    }
  };
  body("");
  for (const { from, to } of lane.edges) {
    const [a, b] = [number.get(from), number.get(to)];
    if (a !== undefined && b !== undefined) out.push(`n${a} -> n${b};`);
  }
  out.push("}");
  return out.join("\n");
}

/** key -> the indices where it stands. */
function indicesBy(keys: readonly string[]): Map<string, number[]> {
  const out = new Map<string, number[]>();
  keys.forEach((key, i) => {
    const list = out.get(key);
    if (list) list.push(i);
    else out.set(key, [i]);
  });
  return out;
}

interface DotAnswer {
  bb?: string;
  objects?: { name: string; pos?: string; bb?: string }[];
  edges?: { tail: number; head: number; pos?: string }[];
}

export function fromDot(lane: LaneInput, json: string): LaneLayout {
  const answer = JSON.parse(json) as DotAnswer;
  const [, , width = 0, height = 0] = numbers(answer.bb ?? "0,0,0,0");
  const boxes = new Map<string, Rectangle>();
  const clusters = new Map<string, Rectangle>();
  const names: string[] = [];
  for (const [i, object] of (answer.objects ?? []).entries()) {
    const cluster = /^cluster_(\d+)$/.exec(object.name);
    if (cluster && object.bb) {
      const [x1 = 0, y1 = 0, x2 = 0, y2 = 0] = numbers(object.bb);
      clusters.set(lane.clusters[Number(cluster[1])]!.id, { x: x1, y: height - y2, width: x2 - x1, height: y2 - y1 });
      continue;
    }
    const box = lane.boxes[Number(object.name.slice(1))];
    if (!box || !object.pos) continue;
    const [x = 0, y = 0] = numbers(object.pos);
    boxes.set(box.id, { x: x - box.size.width / 2, y: height - y - box.size.height / 2, ...box.size });
    names[i] = box.id;
  }
  const edges = (answer.edges ?? []).flatMap(({ tail, head, pos }) => {
    const [from, to] = [names[tail], names[head]];
    return from && to && pos ? [{ from, to, path: spline(pos, height) }] : [];
  });
  return { width, height, boxes, clusters, edges };
}

function numbers(text: string): number[] {
  return text.split(",").map(Number);
}

/** Graphviz's `x,y x,y ...` (a start and Bézier triples) as an SVG path. */
function spline(pos: string, height: number): string {
  const points = pos.split(" ").filter((part) => /^[-\d]/.test(part)).map(numbers)
    .map(([x = 0, y = 0]) => `${x.toFixed(1)},${(height - y).toFixed(1)}`);
  return `M${points[0] ?? "0,0"}${points.length > 1 ? `C${points.slice(1).join(" ")}` : ""}`;
}
