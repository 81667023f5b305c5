// Graphs of any size, without a recording around them.

import { type Graph, type Node, parseModules } from "../src/model";

export function node(index: number, change: Partial<Node> = {}): Node {
  return {
    index, op: "f", name: `n${index}`, target: "aten.relu.default", args: [], kwargs: null, value: null, valueIndex: -1, source: null, stack: "",
    modules: [], sequence: -1, backward: false, descriptor: "", inputs: [], users: [], ...change,
  };
}

/** A graph of nodes; who uses what is filled in. */
export function graphOf(nodes: Node[]): Graph {
  for (const { index, inputs } of nodes) for (const input of inputs) (nodes[input]!.users as number[]).push(index);
  return { snapshot: {} as Graph["snapshot"], role: "joint", nodes, outputDescriptors: [] };
}

/** A chain of `count` nodes, the last the output, with the modules that `module` says. */
export function made(count: number, module: (index: number) => string): Graph {
  const parsed = new Map<string, Node["modules"]>();
  return graphOf(Array.from({ length: count }, (_, i) => {
    const text = module(i);
    if (!parsed.has(text)) parsed.set(text, parseModules(text));
    return node(i, { op: i === count - 1 ? "o" : "f", inputs: i ? [i - 1] : [], modules: parsed.get(text)! });
  }));
}

/** Forward and backward of a deep network in blocks of parts, `count` nodes in all. */
export function network(count: number, blocks = 30): Graph {
  const half = (count - 1) >> 1;
  const nodes: Node[] = [];
  for (let i = 0; i < count - 1; i++) {
    const backward = i >= half;
    const at = backward ? Math.max(0, 2 * half - 1 - i) : i;
    const block = Math.floor((at * blocks) / half);
    const modules = [{ path: "", type: "Net" }, { path: `blocks.${block}`, type: "Block" }, { path: `blocks.${block}.parts.${Math.floor(at / 8)}`, type: "Part" }];
    const inputs = i === 0 ? [] : backward ? [...new Set([i - 1, at])] : [...new Set([i - 1, Math.max(0, i - 7)])];
    nodes.push(node(i, { inputs, modules, backward, sequence: at }));
  }
  nodes.push(node(count - 1, { op: "o", inputs: [count - 2, half - 1] }));
  return graphOf(nodes);
}
