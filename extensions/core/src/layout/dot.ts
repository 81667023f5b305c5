// Writes a lane as DOT text, and reads graphviz's answer as rectangles and curves. Boxes are named by number, so that
// no text of a recording is in the DOT text.

import { CLUSTER_PAD, type LaneInput, type LaneLayout, RANK_GAP } from "./placed";

const POINTS = 72; // graphviz: sizes in inches, positions in points; one point is drawn as one pixel
const LETTER = 7.5; // points: width of a letter of a title in graphviz
const LETTER_WIDTH = 7; // points: assumed width of every letter
export const GAP_X = 15.84; // pixels between the boxes of a row

export function toDot(lane: LaneInput): string {
  const inside = indicesBy(lane.cluster);
  const below = indicesBy(lane.parent);
  const out = [
    "digraph {",
    `graph [rankdir=${lane.upward ? "BT" : "TB"} nodesep=${(GAP_X / POINTS).toFixed(2)} ranksep=${(RANK_GAP / POINTS).toFixed(3)} splines=true margin=0 ` +
      "nslimit=1 nslimit1=1 mclimit=0.1 newrank=false];",
    'node [shape=box fixedsize=true label=""];',
    "edge [arrowhead=none];",
  ];
  const body = (cluster: number): void => {
    for (const i of inside.get(cluster) ?? []) {
      out.push(
        `n${i} [width=${(lane.width[i]! / POINTS).toFixed(3)} height=${(lane.height[i]! / POINTS).toFixed(3)}];`,
      );
    }
    for (const i of below.get(cluster) ?? []) {
      // Space for the title is reserved at the top, which is the bottom of a graph that is drawn upward.
      const title = "n".repeat(titleLetters(lane.titles[i]!));
      out.push(
        `subgraph cluster_${i} { margin=${CLUSTER_PAD}; label="${title}"; labelloc=${lane.upward ? "b" : "t"}; fontsize=14;`,
      );
      body(i);
      out.push("}");
    }
  };
  body(-1);
  lane.from.forEach((from, i) => out.push(`n${from} -> n${lane.to[i]!};`));
  out.push("}");
  return out.join("\n");
}

function titleLetters(width: number): number {
  return Math.max(1, Math.round(width / LETTER));
}

/** The least width of a cluster with a title, in pixels: graphviz pads it. */
export function titleWidth(width: number): number {
  return titleLetters(width) * LETTER_WIDTH + 16;
}

/** key -> the indices that have it. */
function indicesBy(keys: Int32Array): Map<number, number[]> {
  const out = new Map<number, number[]>();
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
  const boxes = lane.width.length;
  const x = new Float32Array(boxes);
  const y = new Float32Array(boxes);
  const clusters = new Float32Array(4 * lane.parent.length);
  const boxOf: number[] = []; // by graphviz's object
  for (const [i, object] of (answer.objects ?? []).entries()) {
    const cluster = /^cluster_(\d+)$/.exec(object.name);
    if (cluster && object.bb) {
      const [x1 = 0, y1 = 0, x2 = 0, y2 = 0] = numbers(object.bb);
      clusters.set([x1, height - y2, x2 - x1, y2 - y1], 4 * Number(cluster[1]));
      continue;
    }
    const box = Number(object.name.slice(1));
    if (!object.pos || !(box < boxes)) continue;
    const [centerX = 0, centerY = 0] = numbers(object.pos);
    x[box] = centerX - lane.width[box]! / 2;
    y[box] = height - centerY - lane.height[box]! / 2;
    boxOf[i] = box;
  }
  const found = new Map<number, Float32Array>();
  for (const { tail, head, pos } of answer.edges ?? []) {
    const [from, to] = [boxOf[tail], boxOf[head]];
    if (from !== undefined && to !== undefined && pos) found.set(from * boxes + to, spline(pos, height));
  }
  return {
    width,
    height,
    x,
    y,
    clusters,
    curves: Array.from(lane.from, (from, i) => found.get(from * boxes + lane.to[i]!) ?? null),
  };
}

function numbers(text: string): number[] {
  return text.split(",").map(Number);
}

/** Graphviz's `x,y x,y ...`: a start and Bézier triples. */
function spline(pos: string, height: number): Float32Array {
  const points = pos
    .split(" ")
    .filter((part) => /^[-\d]/.test(part))
    .map(numbers);
  return Float32Array.from(points.flatMap(([x = 0, y = 0]) => [x, height - y]));
}
