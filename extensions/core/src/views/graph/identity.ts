// Finds a node in another stage's graph: the node with the same value, else the nodes from the same call, else nothing.

import type { Graph, Node } from "../../graph";

export interface Became {
  readonly same: number; // the node that has the same value, or -1
  readonly kin: readonly number[]; // without such a node: those of the same autograd call, else of the same source line
  readonly by: "value" | "name" | "call" | "line" | "nothing";
}

const MOST_KIN = 6;

export function became(node: Node, graph: Graph): Became {
  const values =
    node.valueIndex < 0 ? [] : graph.nodes.filter((other) => other.valueIndex === node.valueIndex && other.op !== "o");
  const value = values.find((other) => other.name === node.name) ?? values[0];
  if (value) return { same: value.index, kin: [], by: "value" };
  const name = graph.nodes.find((other) => other.name === node.name && other.target === node.target);
  if (name) return { same: name.index, kin: [], by: "name" };
  const alike = (test: (other: Node) => boolean): number[] =>
    graph.nodes
      .filter((other) => other.op !== "p" && other.op !== "o" && other.backward === node.backward && test(other))
      .slice(0, MOST_KIN)
      .map(({ index }) => index);
  const call = node.sequence >= 0 ? alike((other) => other.sequence === node.sequence) : [];
  if (call.length) return { same: -1, kin: call, by: "call" };
  const path = node.modules[node.modules.length - 1]?.path;
  const line = node.stack
    ? alike((other) => other.stack === node.stack && other.modules[other.modules.length - 1]?.path === path)
    : [];
  return line.length ? { same: -1, kin: line, by: "line" } : { same: -1, kin: [], by: "nothing" };
}
