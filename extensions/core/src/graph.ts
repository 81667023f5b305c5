// A graph of a recording. The inputs of all nodes are computed at once, because drawing needs them. A node's texts,
// module and users are looked up on demand: the page of a graph with twenty thousand nodes first shows sixty boxes.

import { type CompilationData, type GraphSnapshot, NONE, type ValueRecord, type Wire } from "./wire";

// The policies of torch.utils.checkpoint, by number: CHECKPOINT_TAGS in aotviz/recording/graph.py.
const CHECKPOINT_TAGS = [
  "must save",
  "prefer save",
  "must recompute",
  "prefer recompute",
  "must cpu offload",
  "prefer cpu offload",
];

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
  readonly checkpoint: string; // its tag in a region of torch.utils.checkpoint, in words, or ""
  readonly inputs: readonly number[]; // nodes that it reads, each once
  readonly users: readonly number[]; // nodes that read it, in order
}

/** A list of numbers for each node, joined: node i has `all` from `starts[i]` to `starts[i + 1]`. */
export interface Lists {
  readonly starts: Int32Array;
  readonly all: ArrayLike<number>;
}

export interface Graph {
  readonly snapshot: GraphSnapshot;
  readonly role: string;
  readonly nodes: readonly Node[];
  readonly inputs: Lists; // of all nodes
  readonly outputDescriptors: readonly string[];
}

/**
 * Whether a node runs in the backward. All nodes of a backward graph do, and no node of a forward graph does, even if
 * it was traced in the backward: the partitioner moves such nodes to the forward if it can. For other graphs the answer
 * is `mark`, from GraphSnapshot.backward.
 */
export function runsBackward(role: string, mark: string | undefined): boolean {
  const half = /^(forward|inference|backward)\b/.exec(role)?.[1]; // also matches "forward 2"
  return half ? half === "backward" : mark === "1";
}

/** `text`: the text of a number. */
export function readGraph(
  snapshot: GraphSnapshot,
  role: string,
  compilation: CompilationData,
  text: (number: number) => string,
): Graph {
  return new Columns(snapshot, role, compilation, text);
}

class Columns implements Graph {
  readonly nodes: readonly Node[];
  readonly inputs: Lists;
  private usedBy: Lists | null = null;
  private readonly steps = new Map<number, readonly ModuleStep[]>();
  private readonly sources = new Map<number, SourceLine | null>();

  constructor(
    readonly snapshot: GraphSnapshot,
    readonly role: string,
    readonly compilation: CompilationData,
    readonly text: (number: number) => string,
  ) {
    const size = snapshot.op.length;
    this.inputs = inputsOf(snapshot);
    const nodes = new Array<Node>(size);
    for (let index = 0; index < size; index++) nodes[index] = new Row(this, index);
    this.nodes = nodes;
  }

  get outputDescriptors(): readonly string[] {
    return this.snapshot.output_descriptors.map((number) => this.text(number));
  }

  get users(): Lists {
    return (this.usedBy ??= turned(this.inputs));
  }

  modules(index: number): readonly ModuleStep[] {
    const number = this.snapshot.module[index]!;
    let steps = this.steps.get(number);
    if (!steps) this.steps.set(number, (steps = parseModules(this.text(number))));
    return steps;
  }

  source(index: number): SourceLine | null {
    const number = this.snapshot.stack[index]!;
    let source = this.sources.get(number);
    if (source === undefined) this.sources.set(number, (source = parseSource(this.text(number))));
    return source;
  }
}

class Row implements Node {
  constructor(
    private readonly graph: Columns,
    readonly index: number,
  ) {}

  get op(): string {
    return this.graph.snapshot.op[this.index]!;
  }

  get name(): string {
    return this.graph.text(this.graph.snapshot.name[this.index]!);
  }

  get target(): string {
    return this.graph.text(this.graph.snapshot.target[this.index]!);
  }

  get args(): readonly Wire[] {
    const args = this.graph.snapshot.args[this.index]!;
    return Array.isArray(args) ? args : [args];
  }

  get kwargs(): ReadonlyMap<Wire, Wire> | null {
    const kwargs = this.graph.snapshot.kwargs.get(this.index);
    return kwargs instanceof Map ? (kwargs as ReadonlyMap<Wire, Wire>) : null;
  }

  get value(): ValueRecord | null {
    return this.graph.compilation.values[this.valueIndex] ?? null;
  }

  get valueIndex(): number {
    return this.graph.snapshot.value[this.index]!;
  }

  get source(): SourceLine | null {
    return this.graph.source(this.index);
  }

  get stack(): string {
    return this.graph.text(this.graph.snapshot.stack[this.index]!);
  }

  get modules(): readonly ModuleStep[] {
    return this.graph.modules(this.index);
  }

  get sequence(): number {
    return this.graph.snapshot.sequence[this.index]!;
  }

  get backward(): boolean {
    return runsBackward(this.graph.role, this.graph.snapshot.backward[this.index]);
  }

  get descriptor(): string {
    return this.graph.text(this.graph.snapshot.descriptor.get(this.index) ?? -1);
  }

  get checkpoint(): string {
    const [tag, region] = this.graph.snapshot.checkpoint.get(this.index) ?? [NONE, NONE];
    return region! > 0 ? (CHECKPOINT_TAGS[tag!] ?? "") : "";
  }

  get inputs(): readonly number[] {
    return listOf(this.graph.inputs, this.index);
  }

  get users(): readonly number[] {
    return listOf(this.graph.users, this.index);
  }
}

function listOf({ starts, all }: Lists, index: number): number[] {
  return Array.prototype.slice.call(all, starts[index], starts[index + 1]) as number[];
}

function inputsOf({ op, args, kwargs }: GraphSnapshot): Lists {
  const starts = new Int32Array(op.length + 1);
  const all: number[] = [];
  const readBy = new Int32Array(op.length).fill(-1); // for each node, the last node found to read it
  for (let index = 0; index < op.length; index++) {
    const given = args[index]!;
    if (!Array.isArray(given)) collect(given, index, all, readBy);
    else for (let i = 0; i < given.length; i++) collect(given[i]!, index, all, readBy);
    const named = kwargs.size ? kwargs.get(index) : undefined;
    if (named instanceof Map) collect(named as Wire, index, all, readBy);
    starts[index + 1] = all.length;
  }
  return { starts, all };
}

/** The inverse: for each node, the nodes whose list contains it, in order. */
export function turned({ starts, all }: Lists): Lists {
  const size = starts.length - 1;
  const turnedStarts = new Int32Array(size + 1);
  for (let i = 0; i < all.length; i++) turnedStarts[all[i]! + 1]!++;
  for (let i = 0; i < size; i++) turnedStarts[i + 1]! += turnedStarts[i]!;
  const next = turnedStarts.slice();
  const users = new Int32Array(all.length);
  for (let index = 0; index < size; index++) {
    for (let i = starts[index]!; i < starts[index + 1]!; i++) users[next[all[i]!]!++] = index;
  }
  return { starts: turnedStarts, all: users };
}

/** The node that `[distance]` in an argument of node `index` stands for, or -1. */
export function referred(arg: Wire, index: number): number {
  if (!Array.isArray(arg) || arg.length !== 1 || typeof arg[0] !== "number") return -1;
  const target = index - arg[0];
  return Number.isInteger(target) && target >= 0 && target < index ? target : -1;
}

/** Adds the nodes that an argument of node `index` refers to, each once. */
function collect(arg: Wire, index: number, into: number[], readBy: Int32Array): void {
  if (Array.isArray(arg)) {
    const target = referred(arg, index);
    if (target < 0) for (const part of arg) collect(part, index, into, readBy);
    else if (readBy[target] !== index) {
      readBy[target] = index;
      into.push(target);
    }
  } else if (arg instanceof Map) {
    for (const part of arg.values()) collect(part, index, into, readBy);
  }
}

/** The innermost frame of a stack as Python prints it. */
export function parseSource(stack: string): SourceLine | null {
  const lines = stack
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
  for (let i = lines.length - 1; i >= 0; i--) {
    const frame =
      /^File "(.*)", line (\d+)(?:, in (.*))?$/.exec(lines[i]!) ??
      /^(\S.*?):(\d+)(?: in ([^,:]*))?(?:[,:]\s*(.*))?$/.exec(lines[i]!);
    if (frame) {
      return {
        file: frame[1]!,
        line: Number(frame[2]),
        scope: frame[3] ?? "",
        code: frame[4] ?? lines.slice(i + 1).join(" "),
      };
    }
  }
  return lines.length ? { file: "", line: 0, scope: "", code: lines[lines.length - 1]! } : null;
}

const DEEPEST = 64; // modules in modules

export function parseModules(text: string): ModuleStep[] {
  const steps: ModuleStep[] = [];
  for (let from = 0, end = 0; from < text.length && steps.length < DEEPEST; from = end + 1) {
    end = text.indexOf("\n", from);
    if (end < 0) end = text.length;
    if (end === from) continue;
    const bar = text.lastIndexOf("|", end - 1);
    steps.push(
      bar < from
        ? { path: text.slice(from, end), type: "" }
        : { path: text.slice(from, bar), type: text.slice(bar + 1, end) },
    );
  }
  return steps;
}
