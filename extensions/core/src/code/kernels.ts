// What can be read off Inductor's generated code: which kernels it defines, where it calls them, and which nodes of the
// graph each one computes. For a GPU Inductor lists the nodes above each kernel; for a CPU it only names a kernel
// after the operators that it fuses (those of before decomposition), so there the answer is by operator.

import type { Graph, Node } from "../model";

export interface Kernel {
  readonly name: string; // e.g. "cpp_fused_mul_sin_0", "extern_kernels.mm"
  readonly first: number; // lines of its definition, from 0, inclusive; -1 where it has none of its own
  readonly last: number;
  readonly calls: readonly number[]; // lines
  readonly nodes: readonly string[]; // by name, where the code lists them
}

const DEFINED = /^(\w+) = async_compile\.\w+\(/;
const CALLED = /^\s+(?:\w+ = )?((?:cpp|triton)_\w+|extern_kernels\.\w+|torch\.ops\.[\w.]+|aten\.[\w.]+)(?:\.run)?\(/;
const LISTED = /^#\s+%(\w+) :/; // a line of "Graph fragment"

export function kernelsIn(text: string): Kernel[] {
  const lines = text.split("\n");
  const found = new Map<string, { first: number; last: number; calls: number[]; nodes: string[] }>();
  let listed: string[] = [];
  let inCall = false;
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i]!;
    const defined = DEFINED.exec(line)?.[1];
    const node = LISTED.exec(line)?.[1];
    if (node) listed.push(node);
    if (defined) {
      const quote = /('''|""")/.exec(line)?.[1];
      const first = i;
      while (quote && i + 1 < lines.length && !lines[i + 1]!.startsWith(quote)) i++;
      found.set(defined, { first, last: quote ? Math.min(i + 1, lines.length - 1) : i, calls: [], nodes: listed });
      listed = [];
      continue;
    }
    if (/^\s*def call\(/.test(line)) inCall = true;
    else if (inCall && /^\s*return\b/.test(line)) inCall = false;
    const called = inCall ? CALLED.exec(line)?.[1] : undefined;
    if (!called) continue;
    const kernel = found.get(called);
    if (kernel) kernel.calls.push(i);
    else found.set(called, { first: -1, last: -1, calls: [i], nodes: [] });
  }
  return [...found].map(([name, kernel]) => ({ name, ...kernel }));
}

/** `mm` of "aten.mm.default", of "torch.ops.aten.mm.default". */
function operator(node: Node): string {
  return /(?:^|\.)aten\.(\w+)/.exec(node.target)?.[1] ?? "";
}

/** The kernels that compute a node: the one that lists it, else those that are called after its operator. */
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
