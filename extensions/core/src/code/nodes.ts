// Matches the nodes of two graphs. Within a compilation nodes are matched by value and by name. Values have other
// numbers in another compilation, so nodes of two compilations are matched by operator, with a line diff of the two
// lists of operators. Two matched nodes may still differ in their inputs or results.

import { dtype, shape } from "../format";
import type { Recording } from "../model";
import { type Graph, type Node, referred } from "../graph";
import { Float, type ValueRecord, type Wire } from "../wire";
import { diffLines } from "./diff";

export type Change = "same" | "changed" | "added" | "removed";

export interface NodeChange {
  readonly change: Change;
  readonly before: Node | null;
  readonly after: Node | null;
  readonly differs: readonly string[]; // for a changed node: "name", "operator", "arguments", "shape", ...
}

/** One row per node, in the order of `after`; a removed node keeps its position. */
export function diffNodes(recording: Recording, before: Graph, after: Graph, sameCompilation: boolean): NodeChange[] {
  const partner = partnersOf(recording, before, after, sameCompilation);
  const back = new Map<number, number>();
  for (const [a, b] of partner) back.set(b, a);
  const rows: NodeChange[] = [];
  let at = 0; // position in `before`
  const removedUpTo = (end: number): void => {
    for (; at < end; at++)
      if (!partner.has(at)) rows.push({ change: "removed", before: before.nodes[at]!, after: null, differs: [] });
  };
  for (const node of after.nodes) {
    const mate = back.get(node.index);
    if (mate === undefined) {
      rows.push({ change: "added", before: null, after: node, differs: [] });
      continue;
    }
    removedUpTo(mate);
    const old = before.nodes[mate]!;
    const differs = differences(recording, old, node, partner);
    rows.push({ change: differs.length ? "changed" : "same", before: old, after: node, differs });
  }
  removedUpTo(before.nodes.length);
  return rows;
}

const matched = new WeakMap<Graph, WeakMap<Graph, ReadonlyMap<number, number>>>();

/** before -> after, by index: each node of the one graph and the node of the other that it is. */
export function partnersOf(
  recording: Recording,
  before: Graph,
  after: Graph,
  sameCompilation: boolean,
): ReadonlyMap<number, number> {
  let pairs = matched.get(before);
  if (!pairs) matched.set(before, (pairs = new WeakMap()));
  let found = pairs.get(after);
  if (!found)
    pairs.set(after, (found = sameCompilation ? byValue(before, after) : byOperator(recording, before, after)));
  return found;
}

/**
 * before -> after. Nodes with the same value match (by name if several have it), else with the same name and operator.
 */
function byValue(before: Graph, after: Graph): Map<number, number> {
  const partner = new Map<number, number>();
  const taken = new Set<number>();
  const take = (a: Node, b: Node | undefined): void => {
    if (!b) return;
    partner.set(a.index, b.index);
    taken.add(b.index);
  };
  const holders = new Map<number, Node[]>();
  const named = new Map<string, Node>();
  for (const node of after.nodes) {
    named.set(node.name, node);
    if (node.valueIndex < 0) continue;
    const list = holders.get(node.valueIndex);
    if (list) list.push(node);
    else holders.set(node.valueIndex, [node]);
  }
  const fits = (node: Node): Node[] => (node.valueIndex < 0 ? [] : (holders.get(node.valueIndex) ?? []));
  for (const node of before.nodes)
    take(
      node,
      fits(node).find((other) => other.name === node.name && !taken.has(other.index)),
    );
  for (const node of before.nodes) {
    if (!partner.has(node.index))
      take(
        node,
        fits(node).find((other) => !taken.has(other.index) && (other.op === "p") === (node.op === "p")),
      );
  }
  for (const node of before.nodes) {
    if (partner.has(node.index)) continue;
    const other = named.get(node.name);
    if (
      other &&
      !taken.has(other.index) &&
      other.op === node.op &&
      (other.target === node.target || node.op === "p" || node.op === "o")
    )
      take(node, other);
  }
  return partner;
}

function byOperator(recording: Recording, before: Graph, after: Graph): Map<number, number> {
  const key = (node: Node): string =>
    node.op === "p" ? `input ${node.descriptor || node.name}` : node.op === "o" ? "output" : node.target;
  const exact = (node: Node): string =>
    `${key(node)} ${typeOf(recording, node.value)} ${node.modules.at(-1)?.path ?? ""}`;
  const partner = aligned(before.nodes, after.nodes, exact);
  const taken = new Set(partner.values());
  const rest = aligned(
    before.nodes.filter(({ index }) => !partner.has(index)),
    after.nodes.filter(({ index }) => !taken.has(index)),
    key,
  );
  for (const [a, b] of rest) partner.set(a, b);
  return partner;
}

/** Nodes whose keys match in a diff of the two lists. */
function aligned(before: readonly Node[], after: readonly Node[], key: (node: Node) => string): Map<number, number> {
  const blocks = diffLines(before.map(key), after.map(key));
  const partner = new Map<number, number>();
  let [a, b] = [0, 0];
  const run = (end: number): void => {
    for (; a < end; a++, b++) partner.set(before[a]!.index, after[b]!.index);
  };
  for (const block of blocks) {
    run(block.fromA);
    [a, b] = [block.toA, block.toB];
  }
  run(before.length);
  return partner;
}

function differences(recording: Recording, before: Node, after: Node, partner: ReadonlyMap<number, number>): string[] {
  const out: string[] = [];
  if (before.name !== after.name) out.push("name");
  if (before.target !== after.target && before.op !== "p" && before.op !== "o") out.push("operator");
  if (before.op !== "p" && !sameArguments(recording, before, after, partner)) out.push("arguments");
  const [a, b] = [before.value, after.value];
  if (a && b && a !== b) {
    if (a.dtype !== b.dtype && recording.text(a.dtype) !== recording.text(b.dtype)) out.push("dtype");
    if (shape(a.shape) !== shape(b.shape)) out.push("shape");
    else if (shape(a.stride) !== shape(b.stride)) out.push("stride");
    if (recording.text(a.device) !== recording.text(b.device)) out.push("device");
  }
  if (before.descriptor !== after.descriptor) out.push("meaning");
  return out;
}

function sameArguments(recording: Recording, before: Node, after: Node, partner: ReadonlyMap<number, number>): boolean {
  const same = (a: Wire | undefined, b: Wire | undefined): boolean => {
    if (a instanceof Float && b instanceof Float) return Object.is(a.value, b.value);
    if (Array.isArray(a) && Array.isArray(b)) {
      const [from, to] = [referred(a, before.index), referred(b, after.index)];
      if (from >= 0 || to >= 0) return from >= 0 && to >= 0 && partner.get(from) === to;
      return a.length === b.length && a.every((part, i) => same(part, b[i]));
    }
    if (a instanceof Map && b instanceof Map) {
      const [text, other] = [a.get("r"), b.get("r")];
      if (typeof text === "number" && typeof other === "number") return recording.text(text) === recording.text(other);
      return a.size === b.size && [...a].every(([key, part]) => b.has(key) && same(part, b.get(key)));
    }
    return a === b;
  };
  return (
    same(before.args as Wire[], after.args as Wire[]) &&
    same((before.kwargs ?? new Map()) as Wire, (after.kwargs ?? new Map()) as Wire)
  );
}

function typeOf(recording: Recording, value: ValueRecord | null): string {
  return value?.kind === "tensor" ? dtype(recording.text(value.dtype)) + shape(value.shape) : (value?.kind ?? "");
}
