// Graphs of any size, without a recording around them.

import { type Graph, type Lists, type Node, parseModules } from "../src/graph";

export function node(index: number, change: Partial<Node> = {}): Node {
  return {
    index,
    op: "f",
    name: `n${index}`,
    target: "aten.relu.default",
    args: [],
    kwargs: null,
    value: null,
    valueIndex: -1,
    source: null,
    stack: "",
    modules: [],
    sequence: -1,
    backward: false,
    descriptor: "",
    checkpoint: "",
    inputs: [],
    users: [],
    ...change,
  };
}

export function listsOf(lists: readonly (readonly number[])[]): Lists {
  const starts = new Int32Array(lists.length + 1);
  lists.forEach((list, i) => (starts[i + 1] = starts[i]! + list.length));
  return { starts, all: lists.flat() };
}

/** A graph of nodes; who uses what is filled in. */
export function graphOf(nodes: Node[]): Graph {
  for (const { index, inputs } of nodes) for (const input of inputs) (nodes[input]!.users as number[]).push(index);
  const modules = [...new Set(nodes.map((one) => one.modules))];
  const snapshot = {
    op: nodes.map(({ op }) => op).join(""),
    backward: nodes.map(({ backward }) => (backward ? "1" : "0")).join(""),
    module: nodes.map((one) => modules.indexOf(one.modules)),
  } as unknown as Graph["snapshot"];
  return { snapshot, role: "joint", nodes, inputs: listsOf(nodes.map(({ inputs }) => inputs)), outputDescriptors: [] };
}

/** A chain of `count` nodes, the last the output, with the modules that `module` says. */
export function made(count: number, module: (index: number) => string): Graph {
  const parsed = new Map<string, Node["modules"]>();
  return graphOf(
    Array.from({ length: count }, (_, i) => {
      const text = module(i);
      if (!parsed.has(text)) parsed.set(text, parseModules(text));
      return node(i, { op: i === count - 1 ? "o" : "f", inputs: i ? [i - 1] : [], modules: parsed.get(text)! });
    }),
  );
}

/** Forward and backward of a deep network in blocks of parts, `count` nodes in all. */
export function network(count: number, blocks = 30): Graph {
  const half = (count - 1) >> 1;
  const nodes: Node[] = [];
  for (let i = 0; i < count - 1; i++) {
    const backward = i >= half;
    const at = backward ? Math.max(0, 2 * half - 1 - i) : i;
    const block = Math.floor((at * blocks) / half);
    const modules = [
      { path: "", type: "Net" },
      { path: `blocks.${block}`, type: "Block" },
      { path: `blocks.${block}.parts.${Math.floor(at / 8)}`, type: "Part" },
    ];
    const inputs = i === 0 ? [] : backward ? [...new Set([i - 1, at])] : [...new Set([i - 1, Math.max(0, i - 7)])];
    nodes.push(node(i, { inputs, modules, backward, sequence: at }));
  }
  nodes.push(node(count - 1, { op: "o", inputs: [count - 2, half - 1] }));
  return graphOf(nodes);
}
