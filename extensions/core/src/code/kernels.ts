// Reads Inductor's generated code: which kernels it defines, where it calls them, and which nodes of the graph each one
// computes. Inductor numbers its calls in a comment above each, and lists the nodes that each computes. A recording of
// torch's own may lack this list. Then the nodes listed above each kernel are used, which Inductor writes for a GPU.
// For a CPU, a kernel is only named after the operators that it fuses (before decomposition), so the match is by
// operator. AOTInductor's calls are in its C++ wrapper; the kernels' definitions are in a text of their own.

import type { Graph, Node } from "../graph";

export interface Kernel {
  readonly name: string; // e.g. "cpp_fused_mul_sin_0", "extern_kernels.mm"
  readonly first: number; // lines of its definition, from 0, inclusive; -1 if it has no definition
  readonly last: number;
  readonly calls: readonly number[]; // lines
  readonly nodes: readonly string[]; // by name, if the code lists them
}

const DEFINED = /^(\w+) = async_compile\.\w+\(/;
const CALLED = /^\s+(?:\w+ = )?((?:cpp|triton)_\w+|extern_kernels\.\w+|torch\.ops\.[\w.]+|aten\.[\w.]+)(?:\.run)?\(/;
const LISTED = /^#\s+%(\w+) :/; // a line of "Graph fragment"
const NUMBERED = /^\s+(?:#|\/\/) \[Provenance debug handles\] (\S+):(\d+)$/;
const NO_NODES: ReadonlyMap<string, readonly string[]> = new Map();

interface Definition {
  readonly first: number;
  readonly last: number;
  readonly nodes: readonly string[];
}

/**
 * `computed`: the nodes of each numbered call "kernel:number". Calls of one kernel with different nodes are separate.
 */
export function kernelsIn(text: string, computed: ReadonlyMap<string, readonly string[]> = NO_NODES): Kernel[] {
  const lines = text.split("\n");
  const defined = new Map<string, Definition>();
  const found = new Map<string, Kernel & { calls: number[] }>(); // by name, and by number if it has one
  let listed: string[] = [];
  let numbered: { name: string; key: string } | null = null; // the next call
  let inCall = false;
  const call = (key: string, name: string, line: number): void => {
    const known = found.get(key);
    if (known) return void known.calls.push(line);
    const { first, last, nodes } = defined.get(name) ?? { first: -1, last: -1, nodes: [] };
    found.set(key, { name, first, last, calls: [line], nodes: computed.get(key) ?? nodes });
  };
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i]!;
    const name = DEFINED.exec(line)?.[1];
    const node = LISTED.exec(line)?.[1];
    if (node) listed.push(node);
    if (name) {
      const quote = /('''|""")/.exec(line)?.[1];
      const first = i;
      while (quote && i + 1 < lines.length && !lines[i + 1]!.startsWith(quote)) i++;
      defined.set(name, { first, last: quote ? Math.min(i + 1, lines.length - 1) : i, nodes: listed });
      listed = [];
      continue;
    }
    if (/^\s*def call\(|^void AOTInductorModel::run_impl\(/.test(line)) inCall = true;
    else if (inCall && /^\s*return\b|^\} \/\/ AOTInductorModel/.test(line)) inCall = false;
    if (!inCall) continue;
    const number = NUMBERED.exec(line);
    const called = CALLED.exec(line)?.[1];
    if (number) {
      const key = `${number[1]}:${number[2]}`;
      numbered = computed.has(key) ? { name: number[1]!, key } : null;
    } else if (numbered && !/^\s*(?:#|\/\/|static constexpr |$)/.test(line)) {
      call(numbered.key, numbered.name, i);
      numbered = null;
    } else if (called) call(called, called, i);
  }
  const uncalled = [...defined].filter(([name]) => ![...found.values()].some((kernel) => kernel.name === name));
  return [
    ...uncalled.map(([name, { first, last, nodes }]) => ({ name, first, last, calls: [], nodes })),
    ...found.values(),
  ];
}

/** `mm` of "aten.mm.default", of "torch.ops.aten.mm.default". */
function operator(node: Node): string {
  return /(?:^|\.)aten\.(\w+)/.exec(node.target)?.[1] ?? "";
}

/** The kernels that compute a node: the one that lists it, else those that are named after its operator. */
export function kernelsOf(kernels: readonly Kernel[], node: Node): Kernel[] {
  const listing = kernels.filter(({ nodes }) => nodes.includes(node.name));
  if (listing.length) return listing;
  const name = operator(node);
  return name ? kernels.filter((kernel) => !kernel.nodes.length && isNamedAfter(kernel, name)) : [];
}

/** The nodes that a kernel computes; see kernelsOf. */
export function nodesOf(kernel: Kernel, graph: Graph): Node[] {
  if (kernel.nodes.length) return graph.nodes.filter(({ name }) => kernel.nodes.includes(name));
  return graph.nodes.filter((node) => node.op === "f" && operator(node) !== "" && isNamedAfter(kernel, operator(node)));
}

function isNamedAfter({ name }: Kernel, op: string): boolean {
  const fused = /^(?:cpp|triton_[a-z]+)_fused_(.*)_\d+$/.exec(name)?.[1];
  return fused === undefined ? name.split(".").includes(op) : `_${fused}_`.includes(`_${op}_`);
}
