// Computes what to draw of a graph with some open groups: a box for each closed group and for each node in an open
// group, and edges between boxes with the number of values that pass. Everything is by number, because the flat picture
// of a large graph has tens of thousands of boxes. These are pure functions on data; nothing here draws.

import { type Graph } from "../graph";
import type { Group, Hierarchy, Lane } from "./hierarchy";
import { type Mark, MARKS, marksOf } from "./marks";

export interface Box {
  readonly id: string; // the same in every stage, if names stay the same
  readonly lane: Lane;
  readonly group: Group | null; // a closed group, or
  readonly node: number; // a node, else -1
  readonly parent: Group; // the open group around it
  readonly marks: { [mark in Mark]: number }; // how many nodes in it have each
}

export interface Edge {
  readonly from: number; // box
  readonly to: number; // box
  readonly count: number; // number of values that pass, or of pairs that share memory
  readonly kind: "data" | "quiet" | "alias"; // quiet: drawn only while the pointer is on one of its ends
}

export interface Picture {
  readonly boxes: readonly Box[];
  readonly open: readonly Group[]; // open groups, outer before inner; the roots are not among them
  readonly edges: readonly Edge[];
  /** The box that shows a node, or -1. The output node may have one in each lane. */
  boxOf(node: number, lane?: Lane): number;
}

const UNMARKED = { saved: 0, gradients: 0, returned: 0, written: 0, unread: 0 };
const MOST_GRADIENT_EDGES = 4;
const MOST_ALIASES = 4000; // in one picture

export function picture(graph: Graph, tree: Hierarchy, open: ReadonlySet<string>, flat = false): Picture {
  const boxes: Box[] = [];
  const opened: Group[] = [];
  const at = {
    forward: new Int32Array(graph.nodes.length).fill(-1),
    backward: new Int32Array(graph.nodes.length).fill(-1),
  };
  const add = (lane: Lane, group: Group | null, node: number, parent: Group): number =>
    boxes.push({ id: group ? group.id : `${lane}#${node}`, lane, group, node, parent, marks: { ...UNMARKED } }) - 1;
  const walk = (group: Group): void => {
    const around = flat ? tree.roots[group.lane] : group;
    for (const node of group.nodes) at[group.lane][node] = add(group.lane, null, node, around);
    for (const child of group.groups) {
      if (!child.size) continue;
      if (flat || open.has(child.id)) {
        if (!flat) opened.push(child);
        walk(child);
      } else {
        fill(child, at[child.lane], add(child.lane, child, -1, group));
      }
    }
  };
  walk(tree.roots.forward);
  walk(tree.roots.backward);
  const boxOf = (node: number, lane?: Lane): number => {
    const here = lane ? (at[lane][node] ?? -1) : -1;
    return here >= 0 ? here : Math.max(at.forward[node] ?? -1, at.backward[node] ?? -1);
  };
  const own = new Int32Array(graph.nodes.length); // for each node, its box in its lane
  for (let i = 0; i < own.length; i++) {
    const here = (tree.lanes[i] ? at.backward : at.forward)[i]!;
    own[i] = here >= 0 ? here : boxOf(i);
  }
  return {
    boxes,
    open: opened,
    boxOf,
    edges: [...dataEdges(graph, tree.lanes, boxes, own, boxOf), ...aliasEdges(graph, boxes.length, own)],
  };
}

/** The box of a closed group shows all its nodes. */
function fill(group: Group, at: Int32Array, box: number): void {
  const stack = [group];
  for (let part = stack.pop(); part; part = stack.pop()) {
    for (const node of part.nodes) at[node] = box;
    stack.push(...part.groups);
  }
}

function dataEdges(
  graph: Graph,
  lanes: Uint8Array,
  boxes: readonly Box[],
  own: Int32Array,
  boxOf: Picture["boxOf"],
): Edge[] {
  const marks = marksOf(graph, lanes);
  for (const mark of MARKS) for (const node of marks[mark]) if (own[node]! >= 0) boxes[own[node]!]!.marks[mark]++;
  const output = graph.nodes[graph.nodes.length - 1];
  const { outputs } = marks;
  const returned = [...marks.gradients];
  const counts = new Map<number, number>();
  const {
    inputs: { starts, all },
    snapshot: { op },
  } = graph;
  for (let node = 0; node < own.length; node++) {
    const last = starts[node + 1]!;
    for (let i = starts[node]!; i < last; i++) {
      const input = all[i]!;
      const from = own[input]!;
      let to = own[node]!;
      if (op[node] === "o") {
        if (!outputs.has(input)) continue; // only saved: it gets a mark and no edge
        to = boxOf(node, lanes[input] ? "backward" : "forward");
      }
      if (from === to || from < 0 || to < 0) continue;
      const key = from * boxes.length + to;
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  }
  // If many modules return gradients, their edges to the output would hide the rest. Only the last one is always drawn.
  const returning = new Set(returned.map((node) => boxOf(node, "backward")));
  const quietTo = output && returning.size > MOST_GRADIENT_EDGES ? boxOf(output.index, "backward") : -1;
  const last =
    quietTo < 0
      ? -1
      : boxOf(
          returned.reduce((most, node) => Math.max(most, node), -1),
          "backward",
        );
  return [...counts].map(([key, count]) => {
    const from = Math.floor(key / boxes.length);
    const to = key % boxes.length;
    return { from, to, count, kind: to === quietTo && from !== last ? "quiet" : "data" };
  });
}

/** Pairs of boxes whose values share memory: each with the next in the order of the graph. */
function aliasEdges(graph: Graph, boxes: number, own: Int32Array): Edge[] {
  // The box by storage group; usually there are fewer of them than nodes.
  const last = new Array<number>(own.length).fill(-1);
  const counts = new Map<number, number>();
  for (let i = 0; i < own.length; i++) {
    const storage = graph.nodes[i]!.value?.storage ?? -1;
    if (storage < 0 || graph.snapshot.op[i] === "o") continue;
    const box = own[i]!;
    const before = last[storage] ?? -1;
    last[storage] = box;
    if (before === box || before < 0 || box < 0) continue;
    const key = before * boxes + box;
    if (counts.has(key) || counts.size < MOST_ALIASES) counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts].map(([key, count]) => ({ from: Math.floor(key / boxes), to: key % boxes, count, kind: "alias" }));
}
