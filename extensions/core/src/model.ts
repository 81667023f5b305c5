// Reading a recording: graphs as lists of nodes with their strings, users and sources looked up. Computed once per
// graph and kept; the views share it.

import { anew, type News } from "./news";
import { type Source, type Wait, WholeSource, type Wish } from "./source";
import {
  type CacheLookup, type CodePart, type CompilationData, type CompilationHead, type CompilationPart, Float, type GraphPart,
  type GraphSnapshot, NONE, type RecordingData, type RecordingIndex, type StageRecord, type ValueRecord, type Wire,
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
  readonly users: readonly number[]; // nodes that read it, in order
}

const NOBODY: readonly number[] = [];

export interface Graph {
  readonly snapshot: GraphSnapshot;
  readonly role: string;
  readonly nodes: readonly Node[];
  readonly outputDescriptors: readonly string[];
}

/** A part of a recording that a view can't do without. Numbers are positions: of the compilation, its stage or graph. */
export type Need =
  | { readonly what: "compilation"; readonly compilation: number }
  | { readonly what: "graph"; readonly compilation: number; readonly graph: number }
  | { readonly what: "code"; readonly compilation: number; readonly stage: number };

/** What has come of a compilation: the record's lists fill up. */
export interface Held {
  readonly data: { -readonly [field in keyof CompilationData]: CompilationData[field] };
  about: Pick<CompilationPart, "graph_values" | "graph_bytes" | "code_lines" | "cache_lookups">;
  readonly code: Set<number>; // stages whose texts are there
  opened: boolean; // whether its stages and facts are there
}

/** A recording with its lookups. What has not been looked at is absent until `load` has brought it. */
export class Recording {
  private readonly graphs = new Map<GraphSnapshot, Graph>();
  private held: readonly Held[];
  private readonly coming = new Map<string, Promise<void>>();

  constructor(private readonly source: Source, private now: RecordingIndex) {
    this.held = now.compilations.map(unopened);
  }

  /** Which compilations there are. Another object where `refresh` found more. */
  get index(): RecordingIndex {
    return this.now;
  }

  /**
   * Asks what there is by now, and takes it up. What was loaded stays, as far as it is still so. `open` is the position
   * of a compilation that is kept even if the kernel has dropped it. Null where nothing is new.
   */
  async refresh(open: number): Promise<News | null> {
    const next = await this.source.index(true);
    const news = await anew(this.now, next, this.held, open, (id) => this.source.compilation(id));
    if (!news) return null;
    [this.now, this.held] = [news.index, news.held];
    return news;
  }

  /** A recording that is all there. */
  static whole(data: RecordingData): Recording {
    const source = new WholeSource(data);
    return new Recording(source, source.index());
  }

  static async open(source: Source): Promise<Recording> {
    return new Recording(source, await source.index());
  }

  text(index: number): string {
    return this.source.strings[index] ?? "";
  }

  /** The compilation as far as it is loaded: of one that was never opened, what the index says. */
  compilation(position: number): CompilationData {
    return this.held[position]!.data;
  }

  /** The value numbers of a graph's nodes, one a node, once its compilation is loaded. */
  graphValues(compilation: CompilationData, graph: number): readonly number[] {
    return this.about(compilation)?.graph_values[graph] ?? [];
  }

  /** What a graph's operators make, each storage once, in bytes; -1 where a size is symbolic. */
  graphBytes(compilation: CompilationData, graph: number): number {
    return this.about(compilation)?.graph_bytes[graph] ?? NONE;
  }

  /** How long each text of a stage is, by its name. */
  codeLines(compilation: CompilationData, stage: number): ReadonlyMap<string, number> {
    return this.about(compilation)?.code_lines[stage] ?? new Map();
  }

  /** What it asked of torch's caches. */
  cacheLookups(compilation: CompilationData): readonly CacheLookup[] {
    return this.about(compilation)?.cache_lookups ?? [];
  }

  private about(compilation: CompilationData): Held["about"] | undefined {
    return this.held.find(({ data }) => data === compilation)?.about;
  }

  /** Null for a stage without such a graph, and for one that is not loaded. */
  graph(compilation: CompilationData, stage: StageRecord, role: string): Graph | null {
    const index = stage.graphs.get(role);
    const snapshot = index === undefined ? undefined : compilation.graphs[index];
    if (!snapshot) return null;
    let graph = this.graphs.get(snapshot);
    if (!graph) this.graphs.set(snapshot, (graph = this.read(compilation, snapshot, role)));
    return graph;
  }

  /** What a view must ask for to have a stage's graph; nothing where the stage has none. */
  graphNeed(compilation: number, stage: number, role: string): Need[] {
    const graph = this.compilation(compilation).stages[stage]?.graphs.get(role);
    return graph === undefined ? [] : [{ what: "graph", compilation, graph }];
  }

  has(need: Need): boolean {
    const held = this.held[need.compilation];
    if (!held) return true; // and nothing will come of asking
    if (need.what === "compilation") return held.opened;
    return need.what === "graph" ? held.data.graphs[need.graph] !== undefined : held.code.has(need.stage);
  }

  /** Whether there is a kernel to ask for more than was recorded. */
  get asksKernel(): boolean {
    return this.source.whatIf !== undefined;
  }

  /** The compilation, cut in another way: its stages and facts. Null where there is no kernel. */
  whatIf(compilation: number, wish: Wish, wait: Wait): Promise<CompilationData> | null {
    return this.source.whatIf?.(this.compilation(compilation).id, wish, wait).then((part) => part.compilation) ?? null;
  }

  /** Brings what is missing of `needs`. Null where nothing is to be waited for, as in a recording that is all there. */
  load(needs: readonly Need[]): Promise<void> | null {
    const waits = needs.flatMap((need) => (this.has(need) ? [] : this.bring(need) ?? []));
    return waits.length ? Promise.all(waits).then(() => undefined) : null;
  }

  private bring(need: Need): Promise<void> | null {
    const key = JSON.stringify(need);
    const under = this.coming.get(key);
    if (under) return under;
    const held = this.held[need.compilation]!;
    const { id } = held.data;
    const coming = need.what === "compilation" ? soon(this.source.compilation(id), (part) => takeCompilation(held, part))
      : need.what === "graph" ? soon(this.source.graph(id, need.graph), (part) => takeGraph(held, need.graph, part))
        : soon(this.source.code(id, need.stage), (part) => takeCode(held, need.stage, part));
    if (!coming) return null;
    const done = coming.finally(() => this.coming.delete(key)); // whether it came or failed: a failure may be tried again
    this.coming.set(key, done);
    return done;
  }

  private read(compilation: CompilationData, snapshot: GraphSnapshot, role: string): Graph {
    const modules = new Map<number, ModuleStep[]>();
    const sources = new Map<number, SourceLine | null>();
    const nodes: (Node & { users: readonly number[] })[] = [];
    const read: number[] = []; // by a node
    const readBy = new Int32Array(snapshot.op.length).fill(-1);
    for (let index = 0; index < snapshot.op.length; index++) {
      const stack = snapshot.stack[index]!;
      const module = snapshot.module[index]!;
      if (!sources.has(stack)) sources.set(stack, parseSource(this.text(stack)));
      if (!modules.has(module)) modules.set(module, parseModules(this.text(module)));
      const args = snapshot.args[index]!;
      const kwargs = snapshot.kwargs.get(index);
      const list = Array.isArray(args) ? args : [args];
      const map = kwargs instanceof Map ? (kwargs as ReadonlyMap<Wire, Wire>) : null;
      read.length = 0;
      for (const arg of list) collect(arg, index, read, readBy);
      if (map) for (const arg of map.values()) collect(arg, index, read, readBy);
      const valueIndex = snapshot.value[index]!;
      nodes.push({
        index, op: snapshot.op[index]!, name: this.text(snapshot.name[index]!),
        target: this.text(snapshot.target[index]!), args: list, kwargs: map,
        value: compilation.values[valueIndex] ?? null, valueIndex,
        source: sources.get(stack)!, stack: this.text(stack), modules: modules.get(module)!,
        sequence: snapshot.sequence[index]!, backward: snapshot.backward[index] === "1" || role === "backward",
        descriptor: this.text(snapshot.descriptor.get(index) ?? -1), inputs: read.slice(), users: NOBODY,
      });
    }
    for (const { index, inputs } of nodes) {
      for (let i = 0; i < inputs.length; i++) {
        const node = nodes[inputs[i]!]!;
        if (node.users === NOBODY) node.users = [index];
        else (node.users as number[]).push(index);
      }
    }
    return { snapshot, role, nodes, outputDescriptors: snapshot.output_descriptors.map((i) => this.text(i)) };
  }
}

/** A compilation of which only the head is known. */
export function unopened(head: CompilationHead): Held {
  return { data: outline(head), about: { graph_values: [], graph_bytes: [], code_lines: [], cache_lookups: [] }, code: new Set(), opened: false };
}

function outline(head: CompilationHead): CompilationData {
  const { id, name, kind, started_unix_ns, compile_id, attempts, rank, because, options, error } = head;
  return {
    id, name, kind, started_unix_ns, compile_id, attempts, rank, because, options, error, log: NONE, stack: NONE,
    stages: [], graphs: [], values: [], inputs: [], outputs: [], saved_tensors: [], wrapper: null, graph_texts: [], recomputed: [], storages: [],
  };
}

function soon<T>(part: T | Promise<T>, take: (part: T) => void): Promise<void> | null {
  if (part instanceof Promise) return part.then(take);
  take(part);
  return null;
}

function takeCompilation(held: Held, part: CompilationPart): void {
  const { values, graphs } = held.data;
  Object.assign(held.data, part.compilation);
  if (!part.compilation.values.length) held.data.values = values; // they come with the graphs
  held.data.graphs = graphs;
  held.about = part;
  held.opened = true;
}

function takeGraph({ data }: Held, number: number, part: GraphPart): void {
  part.value_numbers.forEach((value, i) => (data.values[value] = part.values[i]!));
  data.graphs[number] = part.graph;
}

function takeCode({ data, code }: Held, stage: number, part: CodePart): void {
  (data.stages[stage] as { code: ReadonlyMap<string, string> }).code = part.code;
  code.add(stage);
}

/** The node that `[distance]` in an argument of node `index` stands for, or -1. */
export function referred(arg: Wire, index: number): number {
  if (!Array.isArray(arg) || arg.length !== 1 || typeof arg[0] !== "number") return -1;
  const target = index - arg[0];
  return Number.isInteger(target) && target >= 0 && target < index ? target : -1;
}

/** Adds the nodes that an argument of node `index` refers to, each once. `readBy`: of each node, who was last found to read it. */
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
