// Finds a node in another graph. In another stage: the node with the same value, else the nodes from the same call, else
// nothing. In another compilation, where values have other numbers: the node that the diff matches, by operator.

import { partnersOf } from "../../code/nodes";
import type { Graph, Node } from "../../graph";
import type { Recording } from "../../model";

export interface Became {
  readonly same: number; // the node that has the same value, or -1
  readonly kin: readonly number[]; // without such a node: those of the same autograd call, else of the same source line
  readonly by: "value" | "name" | "call" | "line" | "nothing";
}

/** A node, and where it is. */
export interface Seen {
  readonly compilation: string; // its id
  readonly graph: Graph;
  readonly node: Node;
}

export function became(node: Node, graph: Graph): Became {
  const values =
    node.valueIndex < 0 ? [] : graph.nodes.filter((other) => other.valueIndex === node.valueIndex && other.op !== "o");
  const value = values.find((other) => other.name === node.name) ?? values[0];
  if (value) return { same: value.index, kin: [], by: "value" };
  const name = graph.nodes.find(
    (other) =>
      other.name === node.name &&
      (other.target === node.target || (node.stack && other.stack === node.stack)) /* Dynamo has other targets */,
  );
  if (name) return { same: name.index, kin: [], by: "name" };
  const call = sameCall(node, graph);
  if (call.length) return { same: -1, kin: call, by: "call" };
  const line = sameLine(node, graph);
  return { same: -1, kin: line, by: line.length ? "line" : "nothing" };
}

/** What a node is in the graph of a compilation, which may be another one than the node's. */
export function becameIn(recording: Recording, seen: Seen, compilation: string, graph: Graph): Became {
  if (seen.compilation === compilation) return became(seen.node, graph);
  const same = partnersOf(recording, seen.graph, graph, false).get(seen.node.index) ?? -1;
  const kin = same < 0 ? sameLine(seen.node, graph) : [];
  return { same, kin, by: same >= 0 ? "name" : kin.length ? "line" : "nothing" };
}

/**
 * All nodes that a node is in another graph. It is several if a decomposition made several of it: the one with its value,
 * which then has another operator, and the new ones of the same call. In the other direction, several become one.
 */
export function counterparts(recording: Recording, seen: Seen, compilation: string, graph: Graph): readonly number[] {
  const { node, graph: own } = seen;
  const { same, kin } = becameIn(recording, seen, compilation, graph);
  const within = seen.compilation === compilation;
  if (same >= 0 && (!within || graph.nodes[same]!.target === node.target)) return [same];
  const partners = within ? partnersOf(recording, own, graph, true) : new Map<number, number>();
  if (same >= 0) {
    const known = new Set(partners.values());
    return [same, ...sameCall(node, graph).filter((index) => index !== same && !known.has(index))];
  }
  // What both graphs have unchanged is not what this node was made of.
  const unchanged = new Set<number>();
  for (const [a, b] of partners) if (own.nodes[a]!.target === graph.nodes[b]!.target) unchanged.add(b);
  const others = kin.filter((index) => !unchanged.has(index));
  return others.length ? others : kin;
}

/** The nodes of the same autograd call; of the same line too, if there are such: without a gradient, many share a call. */
function sameCall(node: Node, graph: Graph): number[] {
  const call = node.sequence < 0 ? [] : alike(node, graph, (other) => other.sequence === node.sequence);
  const line = call.filter((index) => graph.nodes[index]!.stack === node.stack);
  return line.length ? line : call;
}

function sameLine(node: Node, graph: Graph): number[] {
  const path = node.modules.at(-1)?.path;
  return node.stack
    ? alike(node, graph, (other) => other.stack === node.stack && other.modules.at(-1)?.path === path)
    : [];
}

function alike({ backward }: Node, { nodes }: Graph, test: (other: Node) => boolean): number[] {
  return nodes
    .filter((other) => other.op !== "p" && other.op !== "o" && other.backward === backward && test(other))
    .map(({ index }) => index);
}
