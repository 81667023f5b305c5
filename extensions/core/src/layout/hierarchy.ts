// A graph of thousands of nodes as a few boxes: nodes are put into their modules, modules start closed, and what
// crosses the border of a closed module becomes one edge with a count. Forward and backward are kept apart (two
// lanes), so a module that occurs in both is two boxes. Pure data in, pure data out; nothing here draws.

import { isSaved, isTangent, userName } from "../meaning";
import { type Graph, type ModuleStep, type Node, referred } from "../model";

export type Lane = "forward" | "backward";

export interface Group {
  readonly id: string;
  readonly label: string; // the module's name below its parent's
  readonly type: string; // its class
  readonly path: string;
  readonly lane: Lane;
  readonly parent: Group | null;
  readonly groups: Group[];
  readonly nodes: number[]; // directly in it
  size: number; // nodes in it and in its groups
}

export interface Hierarchy {
  readonly roots: { readonly [lane in Lane]: Group };
  readonly groups: ReadonlyMap<string, Group>;
  readonly home: readonly { readonly [lane in Lane]?: Group }[]; // per node; the output node may be at home in both lanes
}

type Homes = readonly ({ readonly [lane in Lane]?: Group } | undefined)[]; // per node

export interface Box {
  readonly id: string;
  readonly lane: Lane;
  readonly group: Group | null; // a closed module, or
  readonly node: number; // a node, else -1
  readonly parent: Group; // the open module around it
  readonly saved: number; // values in it that the forward hands to the backward
  readonly gradients: number; // values in it that the backward returns
}

export interface Edge {
  readonly from: string;
  readonly to: string;
  readonly count: number; // values that pass
  readonly quiet: boolean; // drawn only when the reader points at one of its ends
}

const MOST_GRADIENT_EDGES = 4;

export interface Picture {
  readonly boxes: readonly Box[];
  readonly open: readonly Group[]; // open modules, outer before inner; the roots are not among them
  readonly edges: readonly Edge[];
}

/** `userInputs`: names of inputs that are neither parameter nor buffer; they stay outside of all modules. */
export function hierarchy(graph: Graph, userInputs: ReadonlySet<string>): Hierarchy {
  const groups = new Map<string, Group>();
  const root = (lane: Lane): Group => {
    const group: Group = { id: `${lane}:`, label: lane, type: "", path: "", lane, parent: null, groups: [], nodes: [], size: 0 };
    groups.set(group.id, group);
    return group;
  };
  const roots = { forward: root("forward"), backward: root("backward") };
  const enter = (lane: Lane, steps: readonly ModuleStep[]): Group => {
    let group: Group = roots[lane];
    for (const step of steps) {
      const id = `${group.id}/${step.path}|${step.type}`;
      let next = groups.get(id);
      if (!next) {
        next = { id, label: below(step, group), type: step.type, path: step.path, lane, parent: group, groups: [], nodes: [], size: 0 };
        groups.set(id, next);
        group.groups.push(next);
      }
      group = next;
    }
    return group;
  };
  // A backward node that knows no module belongs to that of the forward node with its sequence number; one that has
  // none either (a sum of gradients) to the innermost module that has all of what it reads.
  const modulesOf = new Map<number, readonly ModuleStep[]>();
  for (const node of graph.nodes) if (node.sequence >= 0 && node.modules.length) modulesOf.set(node.sequence, node.modules);
  const home: { [lane in Lane]?: Group }[] = [];
  for (const node of graph.nodes) {
    if (isGiven(node)) continue;
    const lane = laneOf(node);
    const lanes: { [lane in Lane]?: Group } = (home[node.index] = {});
    if (node.op === "o") for (const input of node.inputs) lanes[laneOf(graph.nodes[input]!)] = roots[laneOf(graph.nodes[input]!)];
    else {
      const steps = node.modules.length ? node.modules : modulesOf.get(node.sequence);
      lanes[lane] = steps ? enter(lane, steps) : shared(node.inputs, lane, graph, home) ?? roots[lane];
    }
  }
  for (const node of graph.nodes) {
    if (isGiven(node)) home[node.index] = { [laneOf(node)]: inputHome(node, laneOf(node), graph, home, roots, userInputs) };
  }
  home.forEach((lanes, i) => {
    for (const group of Object.values(lanes)) group.nodes.push(i);
  });
  for (const group of groups.values()) {
    for (let at: Group | null = group; at; at = at.parent) at.size += group.nodes.length;
  }
  return { roots, groups, home };
}

function laneOf(node: Node): Lane {
  return node.backward || isTangent(node) ? "backward" : "forward";
}

/** Whether a node takes a value rather than computes one: it has no module of its own, only users. */
function isGiven(node: Node): boolean {
  return node.op === "p" || node.op === "a";
}

/** Parameters and saved values live in the innermost module that has all their users; the user's inputs stay outside. */
function inputHome(
  node: Node, lane: Lane, graph: Graph, home: Homes, roots: { [lane in Lane]: Group }, users: ReadonlySet<string>,
): Group {
  if (isTangent(node) || users.has(userName(node.descriptor))) return roots[lane];
  return shared(node.users, lane, graph, home) ?? roots[lane];
}

/** The innermost module that has all these nodes, as far as they have a home in the lane. */
function shared(nodes: readonly number[], lane: Lane, graph: Graph, home: Homes): Group | null {
  let common: Group | null = null;
  for (const index of nodes) {
    const at = home[index]?.[lane];
    if (!at || graph.nodes[index]!.op === "o") continue;
    common = common ? lowestCommon(common, at) : at;
  }
  return common;
}

function lowestCommon(a: Group, b: Group): Group {
  const above = new Set<Group>();
  for (let at: Group | null = a; at; at = at.parent) above.add(at);
  let at = b;
  while (!above.has(at)) at = at.parent!;
  return at;
}

function below(step: ModuleStep, parent: Group): string {
  if (step.path === "") return step.type || "module";
  const prefix = `${parent.path}.`;
  return parent.path && step.path.startsWith(prefix) ? step.path.slice(prefix.length) : step.path;
}

/** What to open at first: modules that are most of what is around them, down to where there is something to choose. */
export function firstOpen(tree: Hierarchy): Set<string> {
  const open = new Set<string>();
  for (const root of Object.values(tree.roots)) {
    let group = root;
    for (;;) {
      const most = group.groups.find((child) => child.size > 0.6 * root.size && child.nodes.length + child.groups.length <= 60);
      if (!most) break;
      open.add(most.id);
      group = most;
    }
  }
  return open;
}

/** Open every module around a node, so that it can be seen. */
export function openTo(tree: Hierarchy, node: number, open: Set<string>): void {
  for (const group of Object.values(tree.home[node] ?? {})) {
    for (let at: Group | null = group; at?.parent; at = at.parent) open.add(at.id);
  }
}

export function picture(graph: Graph, tree: Hierarchy, open: ReadonlySet<string>): Picture {
  const saved = savedValues(graph);
  const perBox = (nodes: Iterable<number>): Map<string, number> => {
    const counts = new Map<string, number>();
    for (const node of nodes) {
      const box = boxOf(tree, open, node, laneOf(graph.nodes[node]!));
      counts.set(box, (counts.get(box) ?? 0) + 1);
    }
    return counts;
  };
  const output = graph.nodes[graph.nodes.length - 1];
  const returned = output?.op === "o" ? output.inputs.filter((node) => laneOf(graph.nodes[node]!) === "backward") : [];
  const savedIn = perBox(saved);
  const gradientsIn = perBox(returned);
  const boxes: Box[] = [];
  const add = (id: string, lane: Lane, group: Group | null, node: number, parent: Group): void => {
    boxes.push({ id, lane, group, node, parent, saved: savedIn.get(id) ?? 0, gradients: gradientsIn.get(id) ?? 0 });
  };
  const opened: Group[] = [];
  const walk = (group: Group): void => {
    for (const node of group.nodes) add(nodeBox(node, group.lane), group.lane, null, node, group);
    for (const child of group.groups) {
      if (!child.size) continue;
      if (open.has(child.id)) {
        opened.push(child);
        walk(child);
      } else {
        add(child.id, child.lane, child, -1, group);
      }
    }
  };
  walk(tree.roots.forward);
  walk(tree.roots.backward);
  const counts = new Map<string, Edge>();
  for (const node of graph.nodes) {
    for (const input of node.inputs) {
      if (node.op === "o" && saved.has(input)) continue;
      const fromLane = laneOf(graph.nodes[input]!);
      const from = boxOf(tree, open, input, fromLane);
      const to = boxOf(tree, open, node.index, node.op === "o" ? fromLane : laneOf(node));
      if (from === to) continue;
      const key = `${from}\n${to}`;
      counts.set(key, { from, to, count: (counts.get(key)?.count ?? 0) + 1, quiet: false });
    }
  }
  if (output && gradientsIn.size > MOST_GRADIENT_EDGES) quieten(counts, nodeBox(output.index, "backward"), boxOf(tree, open, Math.max(...returned), "backward"));
  return { boxes, open: opened, edges: [...counts.values()] };
}

/** The box that stands for a node: the outermost closed module around it, or its own. */
export function boxOf(tree: Hierarchy, open: ReadonlySet<string>, node: number, lane?: Lane): string {
  const lanes = tree.home[node] ?? {};
  const group = (lane && lanes[lane]) ?? lanes.forward ?? lanes.backward;
  if (!group) return nodeBox(node, "forward");
  let box = nodeBox(node, group.lane);
  for (let at: Group | null = group; at?.parent; at = at.parent) if (!open.has(at.id)) box = at.id;
  return box;
}

/** Where every module returns gradients, an edge from each to the output hides the rest; one, from `last`, stays. */
function quieten(edges: Map<string, Edge>, output: string, last: string): void {
  for (const [key, edge] of edges) if (edge.to === output && edge.from !== last) edges.set(key, { ...edge, quiet: true });
}

/** Nodes that are outputs only to be kept for the backward. They are marked rather than wired to the output. */
function savedValues(graph: Graph): Set<number> {
  const output = graph.nodes[graph.nodes.length - 1];
  const list = output?.op === "o" ? output.args[0] : null;
  if (!output || !Array.isArray(list)) return new Set();
  const given = new Set<number>();
  const kept = new Set<number>();
  list.slice(list[0] === "L" ? 1 : 0).forEach((arg, i) => {
    const node = referred(arg, output.index);
    if (node >= 0) (isSaved(graph.outputDescriptors[i] ?? "") ? kept : given).add(node);
  });
  for (const node of given) kept.delete(node);
  return kept;
}

function nodeBox(node: number, lane: Lane): string {
  return `${lane}#${node}`;
}
