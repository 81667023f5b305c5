// Groups the nodes of a graph by module. Forward and backward are separate lanes, so a module that occurs in both is
// two groups. A group with too many members to read (a flat function with thousands of operations) is split into groups
// of consecutive members. So every graph can be opened step by step, and even a hostile recording cannot make more
// groups than the page can hold.

import { atOnce, type Work } from "../chunked_work";
import { isTangent, userName } from "../descriptors";
import { type Graph, type ModuleStep, type Node, runsBackward } from "../graph";

export type Lane = "forward" | "backward";

export interface Group {
  readonly id: string;
  readonly label: string; // the module's name below its parent's
  readonly type: string; // its class
  readonly path: string;
  readonly lane: Lane;
  parent: Group | null;
  groups: Group[];
  nodes: number[]; // nodes directly in it
  size: number; // nodes in it and in its groups
  first: number; // index of its first node
}

export interface Hierarchy {
  readonly roots: { readonly [lane in Lane]: Group };
  readonly groups: ReadonlyMap<string, Group>;
  readonly home: readonly Home[]; // per node; many share one
  readonly lanes: Uint8Array; // per node: 1 in the backward, else 0
}

/** The group that a node is in, by lane; the output node may be in both lanes. */
export type Home = { readonly [lane in Lane]: Group | null };

const MOST_GROUPS = 50_000;
const MOST_LETTERS = 20_000_000; // in the ids of groups
const PART = 50_000; // nodes per step, which takes some milliseconds
const PASSES = 3; // over all nodes
const READABLE = 400; // members of a group; a larger group is split into runs
const RUN = 100; // members of a run, at least

type Homes = readonly (Home | undefined)[]; // per node

/** `userInputs`: names of the user's inputs; they are outside all modules. */
export function hierarchy(graph: Graph, userInputs: ReadonlySet<string>): Hierarchy {
  return atOnce(grouping(graph, userInputs));
}

/** The same step by step, for a graph so large that the page would freeze otherwise. */
export function* grouping(graph: Graph, userInputs: ReadonlySet<string>): Work<Hierarchy> {
  const groups = new Map<string, Group>();
  const root = (lane: Lane): Group => {
    const group: Group = {
      id: `${lane}:`,
      label: lane,
      type: "",
      path: "",
      lane,
      parent: null,
      groups: [],
      nodes: [],
      size: 0,
      first: Infinity,
    };
    groups.set(group.id, group);
    return group;
  };
  let letters = 0;
  const roots = { forward: root("forward"), backward: root("backward") };
  const entered = { forward: new Map<readonly ModuleStep[], Home>(), backward: new Map<readonly ModuleStep[], Home>() };
  const last: Group[] = []; // the last entered groups, by depth
  const enter = (lane: Lane, steps: readonly ModuleStep[]): Home => {
    const known = entered[lane].get(steps); // the nodes of a module share one `steps` array
    if (known) return known;
    let group: Group = roots[lane];
    for (let depth = 0; depth < steps.length; depth++) {
      const step = steps[depth]!;
      let next = last[depth]; // usually the next module is in mostly the same groups as the last one
      if (next?.parent === group && next.path === step.path && next.type === step.type) {
        group = next;
        continue;
      }
      const id = `${group.id}/${step.path}|${step.type}`;
      next = groups.get(id);
      if (!next) {
        if (groups.size >= MOST_GROUPS || letters > MOST_LETTERS) break;
        letters += id.length;
        next = {
          id,
          label: below(step, group),
          type: step.type,
          path: step.path,
          lane,
          parent: group,
          groups: [],
          nodes: [],
          size: 0,
          first: Infinity,
        };
        groups.set(id, next);
        group.groups.push(next);
      }
      last[depth] = group = next;
    }
    const found = only(lane, group);
    entered[lane].set(steps, found);
    return found;
  };
  const lanes = lanesIn(graph);
  const home = new Array<Home>(graph.nodes.length);
  yield* inParts(home.length, 0, homes(graph, lanes, roots, enter, home));
  const given = new Given(graph, lanes, home);
  yield* inParts(home.length, 1, (from, to) => given.see(from, to));
  given.settle(roots, userInputs);
  yield* inParts(home.length, 2, (from, to) => list(home, from, to));
  for (const group of groups.values()) {
    const first = group.nodes[0] ?? Infinity;
    for (let at: Group | null = group; at; at = at.parent) {
      at.size += group.nodes.length;
      at.first = Math.min(at.first, first);
    }
  }
  for (const group of [...groups.values()]) cut(group, graph, groups, home);
  return { roots, groups, home, lanes };
}

/** Visits the nodes part by part; this is one of PASSES passes. */
function* inParts(nodes: number, pass: number, part: (from: number, to: number) => void): Work<void> {
  for (let from = 0; from < nodes; from += PART) {
    const to = Math.min(nodes, from + PART);
    part(from, to);
    yield (pass + to / nodes) / PASSES;
  }
}

function list(home: Homes, from: number, to: number): void {
  for (let i = from; i < to; i++) {
    const { forward, backward } = home[i]!;
    forward?.nodes.push(i);
    backward?.nodes.push(i);
  }
}

/** Finds the groups of nodes that compute. Inputs get theirs later. */
function homes(
  graph: Graph,
  lanes: Uint8Array,
  roots: Hierarchy["roots"],
  enter: (lane: Lane, steps: readonly ModuleStep[]) => Home,
  home: Home[],
): (from: number, to: number) => void {
  const { op, module } = graph.snapshot;
  // A backward node without a module belongs to the module of the forward node with the same sequence number. Without a
  // sequence number (a sum of gradients), it belongs to the innermost module that has all its inputs.
  let modulesOf: ReadonlyMap<number, readonly ModuleStep[]> | null = null; // by sequence number
  let before = -1; // the last node with a known module: the next is usually in the same module
  return (from, to) => {
    for (let i = from; i < to; i++) {
      const letter = op[i];
      if (isGiven(letter)) continue;
      if (before >= 0 && letter !== "o" && module[i] === module[before] && lanes[i] === lanes[before]) {
        home[i] = home[before]!;
        continue;
      }
      const lane = laneIn(lanes, i);
      const node = graph.nodes[i]!;
      if (letter === "o") {
        const read = new Set(node.inputs.map((input) => laneIn(lanes, input)));
        home[i] = {
          forward: read.has("forward") || (!read.size && lane === "forward") ? roots.forward : null,
          backward: read.has("backward") || (!read.size && lane === "backward") ? roots.backward : null,
        };
      } else if (node.modules.length) {
        home[i] = enter(lane, node.modules);
        before = i;
      } else {
        const steps = (modulesOf ??= modulesBySequence(graph)).get(node.sequence);
        home[i] = steps ? enter(lane, steps) : only(lane, shared(node.inputs, lane, graph, home) ?? roots[lane]);
      }
    }
  };
}

function modulesBySequence(graph: Graph): ReadonlyMap<number, readonly ModuleStep[]> {
  const found = new Map<number, readonly ModuleStep[]>();
  for (const node of graph.nodes) if (node.sequence >= 0 && node.modules.length) found.set(node.sequence, node.modules);
  return found;
}

function only(lane: Lane, group: Group): Home {
  return lane === "forward" ? { forward: group, backward: null } : { forward: null, backward: group };
}

/** Splits a group with too many members into runs; a run that is still too long is split again. */
function cut(group: Group, graph: Graph, groups: Map<string, Group>, home: Home[]): void {
  if (group.groups.length <= READABLE && group.nodes.length <= READABLE) return;
  const run = (index: number, nodes: number[], inner: Group[], label: string): Group => {
    const made: Group = {
      id: `${group.id}/#${index}`,
      label,
      type: "",
      path: group.path,
      lane: group.lane,
      parent: group,
      groups: inner,
      nodes,
      size: nodes.length + inner.reduce((sum, child) => sum + child.size, 0),
      first: nodes[0] ?? inner[0]?.first ?? Infinity,
    };
    for (const node of nodes) home[node] = { ...home[node]!, [group.lane]: made };
    for (const child of inner) child.parent = made;
    groups.set(made.id, made);
    return made;
  };
  const made: Group[] = [];
  if (group.groups.length > READABLE) {
    group.groups.sort((a, b) => a.first - b.first);
    for (const part of runs(group.groups))
      made.push(run(made.length, [], part, `${part[0]!.label} … ${part[part.length - 1]!.label}`));
    group.groups = [];
  }
  const output = graph.nodes.length - 1;
  if (group.nodes.length > READABLE) {
    const stays = group.nodes.filter((node) => node === output && graph.nodes[node]!.op === "o");
    for (const part of runs(group.nodes.filter((node) => !stays.includes(node)))) {
      made.push(
        run(made.length, part, [], `${graph.nodes[part[0]!]!.name} … ${graph.nodes[part[part.length - 1]!]!.name}`),
      );
    }
    group.nodes = stays;
  }
  group.groups.push(...made);
  for (const part of made) cut(part, graph, groups, home);
}

function runs<T>(members: readonly T[]): T[][] {
  const length = Math.max(RUN, Math.ceil(members.length / RUN));
  return Array.from({ length: Math.ceil(members.length / length) }, (_, i) =>
    members.slice(i * length, (i + 1) * length),
  );
}

/** The direct members of a group, in the order of the graph. */
export function members(group: Group): (Group | number)[] {
  const first = (member: Group | number): number => (typeof member === "number" ? member : member.first);
  return [...group.groups.filter(({ size }) => size > 0), ...group.nodes].sort((a, b) => first(a) - first(b));
}

/**
 * The lane in which to look for a node first. The graph of one half has one lane, and a node of the other half is found
 * in that lane.
 */
export function laneOf(node: Node): Lane {
  return node.backward || isTangent(node) ? "backward" : "forward";
}

/** Per node: 1 in the backward, else 0. */
function lanesIn(graph: Graph): Uint8Array {
  const {
    role,
    nodes,
    snapshot: { op, backward },
  } = graph;
  const lanes = new Uint8Array(nodes.length);
  // The graph is one half.
  if (runsBackward(role, "1") === runsBackward(role, "0")) return lanes.fill(runsBackward(role, "0") ? 1 : 0);
  for (let i = 0; i < lanes.length; i++)
    if (backward[i] === "1" || (op[i] === "p" && isTangent(nodes[i]!))) lanes[i] = 1;
  return lanes;
}

function laneIn(lanes: Uint8Array, index: number): Lane {
  return lanes[index] ? "backward" : "forward";
}

/** Whether a node is an input. An input has no module of its own, only users. */
function isGiven(letter: string | undefined): boolean {
  return letter === "p" || letter === "a";
}

/**
 * Puts parameters and saved values into the innermost module that has all their users. The user's inputs stay outside.
 */
class Given {
  private readonly found: number[] = []; // nodes
  private readonly common = new Map<number, Group>();

  constructor(
    private readonly graph: Graph,
    private readonly lanes: Uint8Array,
    private readonly home: Home[],
  ) {}

  see(from: number, to: number): void {
    const {
      lanes,
      home,
      common,
      found,
      graph: {
        snapshot: { op },
        inputs: { starts, all },
      },
    } = this;
    for (let i = from; i < to; i++) {
      const letter = op[i];
      if (isGiven(letter)) found.push(i);
      else if (letter === "o") continue;
      for (let k = starts[i]!; k < starts[i + 1]!; k++) {
        const input = all[k]!;
        if (!isGiven(op[input])) continue;
        const at = home[i]?.[laneIn(lanes, input)];
        if (at) common.set(input, lowestCommon(common.get(input) ?? at, at));
      }
    }
  }

  settle(roots: Hierarchy["roots"], users: ReadonlySet<string>): void {
    for (const index of this.found) {
      const [node, lane] = [this.graph.nodes[index]!, laneIn(this.lanes, index)];
      const outside = isTangent(node) || users.has(userName(node.descriptor));
      this.home[index] = only(lane, (!outside && this.common.get(index)) || roots[lane]);
    }
  }
}

/** The innermost module that has all these nodes; nodes without a group in the lane are ignored. */
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
  if (a === b) return a;
  const above = new Set<Group>();
  for (let at: Group | null = a; at; at = at.parent) above.add(at);
  let at = b;
  while (!above.has(at)) at = at.parent!;
  return at;
}

function below(step: ModuleStep, parent: Group): string {
  if (step.path === "") return step.type || "module";
  const { length } = parent.path;
  return length && step.path[length] === "." && step.path.startsWith(parent.path)
    ? step.path.slice(length + 1)
    : step.path;
}

/** The initially open groups: modules that fill most of their parent, down to a level with several groups. */
export function firstOpen(tree: Hierarchy): Set<string> {
  const open = new Set<string>();
  for (const root of Object.values(tree.roots)) {
    let group = root;
    for (;;) {
      const most = group.groups.find(
        (child) => child.size > 0.6 * root.size && child.nodes.length + child.groups.length <= 60,
      );
      if (!most) break;
      open.add(most.id);
      group = most;
    }
  }
  return open;
}

/** Opens every group around a node, so that it is visible; returns whether any was closed. */
export function openTo(tree: Hierarchy, node: number, open: Set<string>): boolean {
  const before = open.size;
  for (const group of Object.values(tree.home[node] ?? {})) {
    for (let at = group; at?.parent; at = at.parent) open.add(at.id);
  }
  return open.size > before;
}

/** Closes a group and all groups in it, so that it opens in its initial state. */
export function closeAll(group: Group, open: Set<string>): void {
  const stack = [group];
  for (let at = stack.pop(); at; at = stack.pop()) {
    open.delete(at.id);
    stack.push(...at.groups);
  }
}
