// Where a recording's parts come from. `WholeSource` has the whole recording: a file that the page or JupyterLab
// opened. `KernelSource` asks the kernel for each part on first use. Both return the same records, with texts numbered
// in `strings`. A kernel numbers the texts of each compilation separately, so they are renumbered here.

import { checkGraph, decodePart, RecordingError } from "./decode";
import { functionName } from "./format";
import { rowCounts, rowsOf } from "./rows";
import { elementBytes } from "./sizes";
import {
  type CodePart,
  type CompilationData,
  type CompilationHead,
  type CompilationPart,
  type GraphPart,
  type GraphSnapshot,
  NONE,
  type Painting,
  type RecordingData,
  type RecordingIndex,
  type RowsPart,
  type TextTable,
  type ValueRecord,
  type Wire,
} from "./wire";

type Soon<T> = T | Promise<T>; // a loaded part is returned synchronously, so that nothing flickers

export interface Source {
  /** The texts, by the numbers that the parts use. The list grows as parts are loaded. */
  readonly strings: readonly string[];
  /** `again`: this is not the first request, and the answer may take as long as the kernel is busy. */
  index(again?: boolean): Soon<RecordingIndex>;
  /** A compilation without its graphs. */
  compilation(id: string): Soon<CompilationPart>;
  graph(id: string, number: number): Soon<GraphPart>;
  /** The texts of a stage. */
  code(id: string, stage: number): Soon<CodePart>;
  /** The rows of a kind, and what a text number in them says. */
  rows(kind: string): Soon<Rows>;
  /** Takes a painting away. */
  unpaint(compilation: string, label: string): Soon<void>;
  /** The compilation, partitioned in another way; absent without a live program. */
  whatIf?(id: string, wish: Wish, wait: Wait): Promise<CompilationPart>;
}

/** Rows of one kind (see RowsPart), with the texts that they refer to. */
export interface Rows {
  readonly part: RowsPart;
  text(number: number): string;
  /** What a reader sees: a text of torch's in plain words where there are any. */
  plain(number: number): string;
}

function withPlain(part: RowsPart, text: Rows["text"]): Rows {
  const words = new Map(part.plain.map((one) => [one.text, one.words]));
  return { part, text, plain: (number) => words.get(number) ?? text(number) };
}

const NO_TEXTS: TextTable = { numbers: [], texts: [] };

export class WholeSource implements Source {
  constructor(
    private readonly data: RecordingData,
    private paintings: readonly Painting[] = data.paintings,
  ) {}

  get strings(): readonly string[] {
    return this.data.strings;
  }

  index(): RecordingIndex {
    const { format, version, producer, dropped, notes, compilations, compared } = this.data;
    const rows = rowCounts(this.data);
    const heads = compilations.map((one) => head(named(one)));
    const paintings = [...this.paintings];
    return { format, version, producer, dropped, notes, compilations: heads, rows, compared, paintings };
  }

  compilation(id: string): CompilationPart {
    const compilation = this.find(id);
    return {
      compilation: { ...named(compilation), graphs: [] },
      graph_values: compilation.graphs.map(({ value }) => value),
      graph_bytes: compilation.graphs.map((graph) => graphBytes(graph, compilation.values, this.strings)),
      cache_lookups: this.data.cache_lookups.filter(
        ({ origin }) => this.data.compilations[origin.compilation] === compilation,
      ),
      code_lines: compilation.stages.map(
        ({ code }) =>
          new Map([...code].map(([name, text]) => [name, text.split("\n").length - Number(text.endsWith("\n"))])),
      ),
      text_table: NO_TEXTS,
    };
  }

  graph(id: string, number: number): GraphPart {
    return { graph: this.find(id).graphs[number]!, value_numbers: [], values: [], text_table: NO_TEXTS };
  }

  code(id: string, stage: number): CodePart {
    return { code: this.find(id).stages[stage]!.code };
  }

  rows(kind: string): Rows {
    return withPlain(rowsOf(this.data, kind), (number) => this.strings[number] ?? "");
  }

  unpaint(compilation: string, label: string): void {
    this.paintings = this.paintings.filter((one) => one.compilation !== compilation || one.label !== label);
  }

  private find(id: string): CompilationData {
    return this.data.compilations.find((compilation) => compilation.id === id)!;
  }
}

function named<Of extends { readonly name: string }>(one: Of): Of {
  return { ...one, name: functionName(one.name) };
}

function head(data: CompilationData): CompilationHead {
  const { id, name, kind, started_unix_ns, compile_id, frame, attempts, rank, because, options, error, cache } = data;
  return {
    id,
    name,
    kind,
    started_unix_ns,
    compile_id,
    frame,
    attempts,
    rank,
    because,
    options,
    error,
    cache,
    revision: 0,
    stages: data.stages.length,
    elapsed_ns: data.stages.reduce((sum, stage) => sum + (stage.replayed ? 0 : stage.elapsed_ns), 0),
    nodes: data.graphs.reduce((most, graph) => Math.max(most, graph.op.length), 0),
  };
}

/** -1 if a size is symbolic. */
function tensorBytes(dtype: string, shape: ValueRecord["shape"]): number {
  let bytes = elementBytes(dtype);
  for (const size of shape) {
    if (typeof size !== "number") return NONE;
    bytes *= size;
  }
  return bytes;
}

/** The same as graph_bytes in aotviz/recording/sizes.py; a test compares the two. */
function graphBytes(graph: GraphSnapshot, values: readonly ValueRecord[], strings: readonly string[]): number {
  // By storage; usually there are fewer storages than values.
  const largest = new Array<number>(values.length).fill(0);
  const seen = new Uint8Array(values.length);
  let same: Pick<ValueRecord, "dtype" | "shape"> = { dtype: NONE, shape: [] }; // usually the previous value's
  let bytes = 0; // of one of these
  let sum = 0;
  const { op, value } = graph;
  for (let i = op.indexOf("p"); i >= 0; i = op.indexOf("p", i + 1)) {
    const storage = values[value[i]!]?.storage ?? NONE;
    if (storage >= 0) largest[storage] = Infinity; // inputs are not computed
  }
  const pending: number[] = [];
  for (let i = 0; i < op.length; i++) {
    if (op[i] === "p" || op[i] === "o") continue;
    pending.push(value[i]!);
    for (let number = pending.pop(); number !== undefined; number = pending.pop()) {
      if (number < 0 || seen[number]) continue; // a tuple may contain a value twice, and may itself occur twice
      seen[number] = 1;
      const { kind, dtype, shape, storage, parts } = values[number]!;
      for (let k = 0; k < parts.length; k++) pending.push(parts[k]!);
      if (kind !== "tensor") continue;
      const before = storage >= 0 ? (largest[storage] ?? 0) : 0;
      if (before === Infinity) continue;
      if (dtype !== same.dtype || shape !== same.shape) {
        same = { dtype, shape };
        bytes = tensorBytes(strings[dtype] ?? "", shape);
        if (bytes === NONE) return NONE;
      }
      if (bytes <= before) continue;
      sum += bytes - before;
      if (storage >= 0) largest[storage] = bytes;
    }
  }
  return sum;
}

/** Another partition of a compilation's joint graph; "" keeps its partitioner. */
export interface Wish {
  readonly partition_fn: string;
  readonly memory_budget: number; // a share from 0 to 1
}

export type Question =
  | readonly ["what if", string, string, number]
  | readonly ["alive"]
  | readonly ["index"]
  | readonly ["compilation", string]
  | readonly ["graph", string, number]
  | readonly ["code", string, number]
  | readonly ["rows", string]
  | readonly ["unpaint", string, string];

/** How to wait for an answer: only as long as a reader would wait, unless `patient`. */
export interface Wait {
  readonly patient?: boolean;
  /** For a patient question: give up when the kernel does not answer that it is alive. */
  readonly asLongAsAlive?: boolean;
  /** Tells the kernel that the answer is no longer wanted; the question stays open until the kernel answers. */
  readonly signal?: AbortSignal;
  /** Called with the stage that the kernel is running. */
  readonly onStage?: (stage: string) => void;
}

/** Sends a question to the process with the recording; the answer is a part, as packed by aotviz/widgets/parts.py. */
export type Ask = (question: Question, wait?: Wait) => Promise<Uint8Array>;

export class KernelSource implements Source {
  readonly strings: string[] = [];
  private readonly numbers = new Map<string, number>();

  constructor(private readonly ask: Ask) {}

  async index(again = false): Promise<RecordingIndex> {
    const index = (await decodePart(await this.ask(["index"], { patient: again }), "RecordingIndex")) as RecordingIndex;
    return { ...index, compilations: index.compilations.map(named) };
  }

  async compilation(id: string): Promise<CompilationPart> {
    const part = (await decodePart(await this.ask(["compilation", id]), "CompilationPart")) as CompilationPart;
    const text = this.learn(part.text_table);
    const lookups = part.cache_lookups.map((lookup) => ({
      ...lookup,
      reason: text(lookup.reason),
      fields: new Map([...lookup.fields].map(([name, number]) => [name, text(number)])),
    }));
    return {
      ...part,
      cache_lookups: lookups,
      compilation: { ...named(part.compilation), stack: text(part.compilation.stack) },
    };
  }

  async graph(id: string, number: number): Promise<GraphPart> {
    const part = (await decodePart(await this.ask(["graph", id, number]), "GraphPart")) as GraphPart;
    if (part.values.length !== part.value_numbers.length)
      throw new RecordingError("This recording is damaged: a graph's values have no numbers.");
    const text = this.learn(part.text_table);
    const graph = renumberedGraph(part.graph, text);
    const values = part.value_numbers.reduce((most, value) => Math.max(most, value), -1) + 1;
    checkGraph(graph, this.strings.length, values, `graph ${number} of compilation ${id}`);
    return { ...part, graph, values: part.values.map((value) => renumberedValue(value, text)) };
  }

  async code(id: string, stage: number): Promise<CodePart> {
    return (await decodePart(await this.ask(["code", id, stage]), "CodePart")) as CodePart;
  }

  async rows(kind: string): Promise<Rows> {
    const part = (await decodePart(await this.ask(["rows", kind], { patient: true }), "RowsPart")) as RowsPart;
    const texts = new Map(part.text_table.numbers.map((number, i) => [number, part.text_table.texts[i] ?? ""]));
    return withPlain(part, (number) => texts.get(number) ?? "");
  }

  async unpaint(compilation: string, label: string): Promise<void> {
    await this.ask(["unpaint", compilation, label]);
  }

  async whatIf(id: string, { partition_fn, memory_budget }: Wish, wait: Wait): Promise<CompilationPart> {
    return (await decodePart(
      await this.ask(["what if", id, partition_fn, memory_budget], { ...wait, patient: true, asLongAsAlive: true }),
      "CompilationPart",
    )) as CompilationPart;
  }

  /** Adds texts; returns a function from the kernel's number of a text to ours. */
  private learn(table: TextTable): (theirs: number) => number {
    const ours = new Map<number, number>([[NONE, NONE]]);
    table.numbers.forEach((theirs, i) => {
      const text = table.texts[i] ?? "";
      let number = this.numbers.get(text);
      if (number === undefined) {
        this.numbers.set(text, (number = this.strings.length));
        this.strings.push(text);
      }
      ours.set(theirs, number);
    });
    return (theirs) => {
      const number = ours.get(theirs);
      if (number === undefined)
        throw new RecordingError(`This recording is damaged: text ${theirs} is missing from its part.`);
      return number;
    };
  }
}

function renumberedValue(value: ValueRecord, text: (theirs: number) => number): ValueRecord {
  return { ...value, dtype: text(value.dtype), device: text(value.device), text: text(value.text) };
}

function renumberedGraph(graph: GraphSnapshot, text: (theirs: number) => number): GraphSnapshot {
  const values = (map: ReadonlyMap<number, Wire>): ReadonlyMap<number, Wire> =>
    new Map(
      [...map].map(([node, named]) => [
        node,
        named instanceof Map ? new Map([...named].map(([key, arg]) => [key, renumberedArgument(arg, text)])) : named,
      ]),
    );
  return {
    ...graph,
    name: graph.name.map(text),
    target: graph.target.map(text),
    stack: graph.stack.map(text),
    module: graph.module.map(text),
    args: graph.args.map((args) => (Array.isArray(args) ? args.map((arg) => renumberedArgument(arg, text)) : args)),
    kwargs: values(graph.kwargs),
    descriptor: new Map([...graph.descriptor].map(([node, number]) => [node, text(number)])),
    output_descriptors: graph.output_descriptors.map(text),
  };
}

/** An argument (see GraphSnapshot) whose texts have our numbers. */
function renumberedArgument(arg: Wire, text: (theirs: number) => number): Wire {
  if (Array.isArray(arg)) return arg[0] === "L" ? arg.map((part) => renumberedArgument(part, text)) : arg;
  if (!(arg instanceof Map)) return arg;
  return new Map(
    [...arg].map(([tag, content]) => {
      if (tag === "r" && typeof content === "number") return [tag, text(content)];
      if (Array.isArray(content)) return [tag, content.map((part) => renumberedArgument(part, text))];
      if (content instanceof Map)
        return [tag, new Map([...content].map(([key, part]) => [key, renumberedArgument(part, text)]))];
      return [tag, content];
    }),
  );
}
