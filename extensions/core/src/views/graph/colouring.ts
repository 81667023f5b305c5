// Colours by a property of the nodes: the categories, the number of nodes in each, and the category of each box. A
// closed group shows the categories of its nodes. Cost is approximated by the bytes that a node allocates, and the
// legend says so.

import { bytes, dtype } from "../../format";
import type { Group } from "../../layout/hierarchy";
import { marksOf } from "../../layout/marks";
import type { Box } from "../../layout/picture";
import type { Graph, Node } from "../../graph";
import { madeBytes } from "../../sizes";
import type { State } from "../../state";
import type { Painting, ValueRecord } from "../../wire";
import { aliveIn } from "./alive";
import { operator } from "./labels";
import { CATEGORIES, RAMP } from "./palette";
import { scaleOf, shown, together, type Value, valuesIn } from "./painting";

export const COLOURINGS = {
  direction: "forward / backward",
  kind: "kind of operation",
  dtype: "dtype",
  device: "device",
  storage: "shared storage",
  fate: "saved / recomputed",
  bytes: "bytes allocated (≈ cost)",
  alive: "bytes alive",
} as const;
export type ColourBy = keyof typeof COLOURINGS;
const PAINTED = "painted"; // with the user's own values

/** What the colours mean, as terms.toml has it. */
export function propertyOf({ by }: Colouring): string {
  return by === PAINTED ? PAINTED : COLOURINGS[by];
}

export interface LegendEntry {
  readonly text: string;
  readonly colour: number; // category, or step of the ramp
  readonly count: number; // number of nodes, or of boxes on the ramp
}

export interface Tint {
  readonly colour: number; // of the largest part of the box
  // For a closed group, largest first; colour -1 means none.
  readonly shares: readonly (readonly [colour: number, share: number])[];
}

export interface Colouring {
  readonly by: ColourBy | typeof PAINTED;
  readonly ramp: boolean;
  readonly legend: readonly LegendEntry[];
  readonly tints: readonly (Tint | null)[]; // per box; null if it does not have the property
  readonly said?: readonly (string | undefined)[]; // per box: its value, written in place of its type
}

const KINDS: readonly (readonly [string, RegExp])[] = [
  ["attention", /attention|scaled_dot_product/],
  [
    "matrix product, convolution",
    /^_?(add|ba|scaled_|int_)*b?mm(_|$)|^(matmul|linear|dot|mv|addmv|einsum)|conv(olution)?/,
  ],
  ["normalisation, softmax", /norm|softmax/],
  ["random", /dropout|^rand|bernoulli|philox|^normal|^uniform/],
  [
    "view",
    /^((_?unsafe_)?view|_reshape_alias|reshape|permute|transpose|t|expand|slice|select|unsqueeze|squeeze|split|split_with_sizes|as_strided|alias|detach|unbind|diagonal|narrow|unfold|movedim)(_copy)?$/,
  ],
  [
    "reduction",
    /^(sum|mean|amax|amin|max|min|var|var_mean|std|argmax|argmin|prod|any|all|logsumexp|cumsum|cumprod|topk|sort)(_|$)/,
  ],
  [
    "copy, gather, scatter",
    /clone|copy|^(cat|stack|index|gather|scatter|embedding|constant_pad_nd|flip|roll|repeat|convert_element_type)/,
  ],
  ["creation", /^(full|zeros|ones|empty|arange|iota|scalar_tensor|lift)/],
];

const OTHER_KIND = "pointwise and other";
const KIND_NAMES = [OTHER_KIND, "input", ...KINDS.map(([name]) => name)]; // one for each colour

export function kindOf(node: Node): string {
  if (node.op === "p" || node.op === "a") return "input";
  if (node.op === "o" || node.target.endsWith("getitem")) return "";
  const name = operator(node.target);
  return KINDS.find(([, pattern]) => pattern.test(name))?.[0] ?? OTHER_KIND;
}

/** The colours of the user's painting if one is selected, else by a property. */
export function colouring(state: State, graph: Graph, boxes: readonly Box[], by: ColourBy): Colouring {
  const { painting, stage } = state;
  if (painting) return byValue(painting, valuesIn(painting, graph, stage?.name ?? "").of, graph, boxes);
  if (by === "direction") return { by, ramp: false, legend: [], tints: boxes.map(() => null) };
  if (by === "bytes") return byBytes(by, madeBytes(state, graph), (a, b) => a + b, boxes);
  if (by === "alive") return byBytes(by, aliveIn(state, graph), Math.max, boxes);
  return byCategory(graph, boxes, by, keys(state, graph, by));
}

function byCategory(
  graph: Graph,
  boxes: readonly Box[],
  by: Colouring["by"],
  keyOf: (node: Node) => string,
): Colouring {
  const counts = new Map<string, number>();
  const keyed = graph.nodes.map((node) => {
    const key = keyOf(node);
    if (key) counts.set(key, (counts.get(key) ?? 0) + 1);
    return key;
  });
  const order = [...counts].sort((a, b) => b[1] - a[1]);
  // Kinds have the same colours in every graph. For other properties, the most frequent categories get the colours.
  const number = new Map(
    order.map(([key], i) => [key, by === "kind" ? KIND_NAMES.indexOf(key) : Math.min(i, CATEGORIES - 1)]),
  );
  const legend = order
    .slice(0, order.length > CATEGORIES ? CATEGORIES - 1 : CATEGORIES)
    .map(([text, count]) => ({ text, colour: number.get(text)!, count }));
  const others = order.slice(legend.length);
  if (others.length)
    legend.push({
      text: `${others.length} others`,
      colour: CATEGORIES - 1,
      count: others.reduce((sum, [, count]) => sum + count, 0),
    });
  const colourOf = (node: number): number => number.get(keyed[node]!) ?? -1;
  return {
    by,
    ramp: false,
    legend,
    tints: boxes.map((box) => (box.group ? mixture(box.group, colourOf) : single(colourOf(box.node)))),
  };
}

function single(colour: number): Tint | null {
  return colour < 0 ? null : { colour, shares: [] };
}

function mixture(group: Group, colourOf: (node: number) => number): Tint | null {
  const counts = new Map<number, number>();
  eachNode(group, (node) => counts.set(colourOf(node), (counts.get(colourOf(node)) ?? 0) + 1));
  const shares = [...counts]
    .map(([colour, count]) => [colour, count / group.size] as const)
    .sort((a, b) => b[1] - a[1]);
  const most = shares.find(([colour]) => colour >= 0);
  return most ? { colour: most[0], shares } : null;
}

function eachNode(group: Group, visit: (node: number) => void): void {
  const stack = [group];
  for (let at = stack.pop(); at; at = stack.pop()) {
    at.nodes.forEach(visit);
    stack.push(...at.groups);
  }
}

function byValue(
  painting: Painting,
  values: readonly (Value | undefined)[],
  graph: Graph,
  boxes: readonly Box[],
): Colouring {
  const { unit, groups } = painting;
  if (painting.texts.length) {
    const said = boxes.map((box) => (box.group ? undefined : values[box.node]?.toString()));
    return { ...byCategory(graph, boxes, PAINTED, ({ index }) => String(values[index] ?? "")), said };
  }
  const isNumber = (value: Value | undefined): value is number => typeof value === "number";
  const numbers = values.filter(isNumber);
  const totals = boxes.map((box) => {
    const own = values[box.node];
    if (!box.group) return isNumber(own) ? own : undefined;
    const inside: number[] = [];
    eachNode(box.group, (node) => {
      const value = values[node];
      if (isNumber(value)) inside.push(value);
    });
    return together(inside, groups);
  });
  const scale = scaleOf(groups === "sum" ? totals.filter(isNumber) : numbers, unit);
  return {
    by: PAINTED,
    ramp: true,
    legend: scale.legend(numbers),
    tints: totals.map((total) => (total === undefined ? null : { colour: scale.colour(total), shares: [] })),
    said: totals.map((total, box) => {
      if (total === undefined) return undefined;
      const text = shown(total, unit);
      return !boxes[box]!.group ? text : groups === "sum" ? `${text} in all` : `largest ${text}`;
    }),
  };
}

/** `together`: of two nodes in a closed group. */
function byBytes(
  by: "bytes" | "alive",
  sizes: readonly (number | null)[],
  together: (a: number, b: number) => number,
  boxes: readonly Box[],
): Colouring {
  const totals = boxes.map((box) => {
    if (!box.group) return sizes[box.node] ?? 0;
    let sum = 0;
    eachNode(box.group, (node) => (sum = together(sum, sizes[node] ?? 0)));
    return sum;
  });
  const most = totals.reduce((a, b) => Math.max(a, b), 1);
  const least = totals.reduce((a, b) => (b > 0 ? Math.min(a, b) : a), most);
  const span = Math.log(most / least) || 1;
  const step = (total: number): number => Math.min(RAMP - 1, Math.floor((RAMP * Math.log(total / least)) / span));
  const legend = Array.from({ length: RAMP }, (_, colour) => ({
    colour,
    text: `up to ${bytes(Math.round(least * Math.exp((span * (colour + 1)) / RAMP)))}`,
    count: totals.filter((total) => total > 0 && step(total) === colour).length,
  })).filter(({ count }) => count > 0);
  return {
    by,
    ramp: true,
    legend,
    tints: totals.map((total) => (total > 0 ? { colour: step(total), shares: [] } : null)),
  };
}

function keys(
  state: State,
  graph: Graph,
  by: Exclude<ColourBy, "direction" | "bytes" | "alive">,
): (node: Node) => string {
  const { recording } = state;
  const tensor = ({ value }: Node): ValueRecord | null => (value?.kind === "tensor" ? value : null);
  if (by === "kind") return kindOf;
  if (by === "dtype") return (node) => (tensor(node) ? dtype(recording.text(tensor(node)!.dtype)) : "");
  if (by === "device") return (node) => (tensor(node) ? recording.text(tensor(node)!.device) : "");
  if (by === "storage") {
    const groups = new Map<number, { readonly name: string; count: number }>(); // named after its first node
    for (const { op, value, name, descriptor } of graph.nodes) {
      if (op === "o" || !value || value.storage < 0) continue;
      const group = groups.get(value.storage) ?? { name: `memory of ${descriptor || name}`, count: 0 };
      groups.set(value.storage, group);
      group.count++;
    }
    return ({ op, value }) => {
      const group = op !== "o" && value ? groups.get(value.storage) : undefined;
      return group && group.count > 1 ? group.name : "";
    };
  }
  const { saved, recomputed } = fates(state);
  return ({ op, valueIndex }) =>
    op === "o" || valueIndex < 0
      ? ""
      : saved.has(valueIndex)
        ? "saved for the backward"
        : recomputed.has(valueIndex)
          ? "recomputed in the backward"
          : "";
}

/** The last forward and backward graphs, which show what finally happens to each value. */
export function fateGraphs({ compilation }: State): { stage: number; role: "forward" | "backward" }[] {
  return (["forward", "backward"] as const).flatMap((role) => {
    const stage = compilation.stages.findLastIndex(
      ({ graphs }) => graphs.has(role) && graphs.has("forward") === graphs.has("backward"),
    );
    return stage < 0 ? [] : [{ stage, role }];
  });
}

/** The values that the partition saves and those that the backward recomputes, in any graph. */
export function fates(state: State): { saved: ReadonlySet<number>; recomputed: ReadonlySet<number> } {
  const { recording, compilation } = state;
  const saved = new Set<number>();
  const recomputed = new Set<number>();
  for (const { stage, role } of fateGraphs(state)) {
    const graph = recording.graph(compilation, compilation.stages[stage]!, role);
    if (!graph) continue;
    const kept = role === "forward" ? marksOf(graph).saved : [];
    for (const node of kept) saved.add(graph.nodes[node]!.valueIndex);
    if (role === "backward")
      for (const { op, index, valueIndex } of graph.nodes)
        if (op === "f" && graph.snapshot.backward[index] !== "1") recomputed.add(valueIndex);
  }
  return { saved, recomputed };
}
