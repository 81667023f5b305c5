// Reading a recording: graphs as lists of nodes with their strings, users and sources looked up. Computed once per
// graph and kept; the views share it.

import {
  type CompilationData, Float, type GraphSnapshot, type RecordingData, type StageRecord, type ValueRecord, type Wire,
} from "./wire";

export interface SourceLine {
  readonly file: string; // "" where unknown
  readonly line: number; // 0 where unknown
  readonly scope: string; // function name, or ""
  readonly code: string;
}

export interface ModuleStep {
  readonly path: string;
  readonly type: string;
}

export interface Node {
  readonly index: number;
  readonly op: string; // one letter, see GraphSnapshot.op
  readonly name: string;
  readonly target: string;
  readonly args: readonly Wire[];
  readonly kwargs: ReadonlyMap<Wire, Wire> | null;
  readonly value: ValueRecord | null;
  readonly valueIndex: number;
  readonly source: SourceLine | null;
  readonly stack: string;
  readonly modules: readonly ModuleStep[]; // outermost first
  readonly sequence: number;
  readonly backward: boolean;
  readonly descriptor: string;
  readonly inputs: readonly number[]; // nodes it reads, each once
  readonly users: number[]; // nodes that read it, in order
}

export interface Graph {
  readonly snapshot: GraphSnapshot;
  readonly role: string;
  readonly nodes: readonly Node[];
  readonly outputDescriptors: readonly string[];
}

/** A recording with its lookups. */
export class Recording {
  private readonly graphs = new Map<GraphSnapshot, Graph>();

  constructor(readonly data: RecordingData) {}

  text(index: number): string {
    return this.data.strings[index] ?? "";
  }

  graph(compilation: CompilationData, stage: StageRecord, role: string): Graph | null {
    const index = stage.graphs.get(role);
    const snapshot = index === undefined ? undefined : compilation.graphs[index];
    if (!snapshot) return null;
    let graph = this.graphs.get(snapshot);
    if (!graph) this.graphs.set(snapshot, (graph = this.read(compilation, snapshot, role)));
    return graph;
  }

  private read(compilation: CompilationData, snapshot: GraphSnapshot, role: string): Graph {
    const modules = new Map<number, ModuleStep[]>();
    const sources = new Map<number, SourceLine | null>();
    const nodes: Node[] = [];
    for (let index = 0; index < snapshot.op.length; index++) {
      const stack = snapshot.stack[index]!;
      const module = snapshot.module[index]!;
      if (!sources.has(stack)) sources.set(stack, parseSource(this.text(stack)));
      if (!modules.has(module)) modules.set(module, parseModules(this.text(module)));
      const args = snapshot.args[index]!;
      const kwargs = snapshot.kwargs.get(index);
      const list = Array.isArray(args) ? args : [args];
      const map = kwargs instanceof Map ? (kwargs as ReadonlyMap<Wire, Wire>) : null;
      const inputs = new Set<number>();
      for (const arg of list) collect(arg, index, inputs);
      if (map) for (const arg of map.values()) collect(arg, index, inputs);
      const valueIndex = snapshot.value[index]!;
      nodes.push({
        index, op: snapshot.op[index]!, name: this.text(snapshot.name[index]!),
        target: this.text(snapshot.target[index]!), args: list, kwargs: map,
        value: compilation.values[valueIndex] ?? null, valueIndex,
        source: sources.get(stack)!, stack: this.text(stack), modules: modules.get(module)!,
        sequence: snapshot.sequence[index]!, backward: snapshot.backward[index] === "1" || role === "backward",
        descriptor: this.text(snapshot.descriptor.get(index) ?? -1), inputs: [...inputs], users: [],
      });
    }
    for (const node of nodes) for (const input of node.inputs) nodes[input]!.users.push(node.index);
    return { snapshot, role, nodes, outputDescriptors: snapshot.output_descriptors.map((i) => this.text(i)) };
  }
}

/** The node that `[distance]` in an argument of node `index` stands for, or -1. */
export function referred(arg: Wire, index: number): number {
  if (!Array.isArray(arg) || arg.length !== 1 || typeof arg[0] !== "number") return -1;
  const target = index - arg[0];
  return Number.isInteger(target) && target >= 0 && target < index ? target : -1;
}

function collect(arg: Wire, index: number, into: Set<number>): void {
  if (Array.isArray(arg)) {
    const target = referred(arg, index);
    if (target >= 0) into.add(target);
    else for (const part of arg) collect(part, index, into);
  } else if (arg instanceof Map) {
    for (const part of arg.values()) collect(part, index, into);
  }
}

/** The innermost frame of a stack as Python prints it. */
export function parseSource(stack: string): SourceLine | null {
  const lines = stack.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  for (let i = lines.length - 1; i >= 0; i--) {
    const frame = /^File "(.*)", line (\d+)(?:, in (.*))?$/.exec(lines[i]!) ?? /^(\S.*?):(\d+)(?: in ([^,:]*))?(?:[,:]\s*(.*))?$/.exec(lines[i]!);
    if (frame) {
      return { file: frame[1]!, line: Number(frame[2]), scope: frame[3] ?? "", code: frame[4] ?? lines.slice(i + 1).join(" ") };
    }
  }
  return lines.length ? { file: "", line: 0, scope: "", code: lines[lines.length - 1]! } : null;
}

const DEEPEST = 64; // modules in modules

export function parseModules(text: string): ModuleStep[] {
  return text.split("\n").filter((line) => line !== "").slice(0, DEEPEST).map((line) => {
    const bar = line.lastIndexOf("|");
    return bar < 0 ? { path: line, type: "" } : { path: line.slice(0, bar), type: line.slice(bar + 1) };
  });
}

/** The stage before `index` that has a graph to compare with `role`: the same role, else the joint graph. */
export function previousGraph(compilation: CompilationData, index: number, role: string): { stage: number; role: string } | null {
  for (let i = index - 1; i >= 0; i--) {
    const graphs = compilation.stages[i]!.graphs;
    for (const candidate of [role, "joint", ...graphs.keys()]) {
      if (graphs.has(candidate)) return { stage: i, role: candidate };
    }
  }
  return null;
}

/** Whether its stages have times of their own: torch's log has none for them. */
export function timed(compilation: CompilationData): boolean {
  return !compilation.compile_id || compilation.stages.some((stage) => stage.elapsed_ns > 0);
}

export function isFloat(value: Wire): value is Float {
  return value instanceof Float;
}
