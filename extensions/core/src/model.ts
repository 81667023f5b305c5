// The recording as the views read it. A part is loaded on first use. A graph is decoded once, and all views share it.

import { type Graph, readGraph } from "./graph";
import { type LoadedParts, takeCode, takeCompilation, takeGraph, unopened } from "./loaded_parts";
import { liveUpdate, type LiveUpdate } from "./live_updates";
import { type Rows, type Source, type Wait, WholeSource, type Wish } from "./source";
import {
  type CacheLookup,
  type CompilationData,
  Float,
  type GraphSnapshot,
  NONE,
  type RecordingData,
  type RecordingIndex,
  type StageRecord,
  type Wire,
} from "./wire";

/**
 * A part of a recording that a view needs. The numbers are positions of the compilation, its stage or its graph.
 */
export type Need =
  | { readonly what: "compilation"; readonly compilation: number }
  | { readonly what: "graph"; readonly compilation: number; readonly graph: number }
  | { readonly what: "code"; readonly compilation: number; readonly stage: number }
  | { readonly what: "rows"; readonly kind: string };

/** A recording with its lookups. A part is absent until `load` has loaded it. */
export class Recording {
  private readonly graphs = new Map<GraphSnapshot, Graph>();
  private held: readonly LoadedParts[];
  private readonly rowsHeld = new Map<string, Rows>(); // by kind
  private readonly rowsRead = new Set<string>(); // kinds that a view has asked for since the last refresh
  private readonly whys = new WeakMap<Rows, ReadonlyMap<string, string>>(); // id of a compilation -> why it was made
  private readonly coming = new Map<string, Promise<void>>();

  constructor(
    private readonly source: Source,
    private now: RecordingIndex,
  ) {
    this.held = now.compilations.map(unopened);
  }

  /** The index of compilations. It is a new object if `refresh` found more. */
  get index(): RecordingIndex {
    return this.now;
  }

  /**
   * Asks for the current index and uses it. Loaded parts stay if they are still valid. `open` is the position of a
   * compilation that is kept even if the kernel has dropped it. Null if nothing is new.
   */
  async refresh(open: number): Promise<LiveUpdate | null> {
    const next = await this.source.index(true);
    const news = await liveUpdate(this.now, next, this.held, open, (id) => this.source.compilation(id));
    if (!news) return null;
    for (const kind of [...this.rowsHeld.keys()]) {
      if (this.rowsRead.has(kind)) this.rowsHeld.set(kind, await this.source.rows(kind));
      else this.rowsHeld.delete(kind);
    }
    this.rowsRead.clear();
    [this.now, this.held] = [news.index, news.held];
    return news;
  }

  /** The rows of a kind (see RowsPart) if they are loaded. They are a new object when there may be more. */
  rows(kind: string): Rows | undefined {
    this.rowsRead.add(kind);
    return this.rowsHeld.get(kind);
  }

  /** Why a function was compiled again, in a sentence; "" for a first compilation. Until it is loaded: what the guard says. */
  why(position: number): string {
    const { id, because } = this.compilation(position);
    const rows = this.rows("why");
    if (rows && !this.whys.has(rows))
      this.whys.set(rows, new Map(rows.part.why.map(({ compilation, words }) => [compilation, words])));
    return (rows && this.whys.get(rows)?.get(id)) ?? because[0] ?? "";
  }

  /** The same without the function and what follows from it. */
  whyInShort(position: number): string {
    const told = this.why(position);
    return /compiled again because ((?:`[^`]*`|[^`])*?)\.(?: |$)/.exec(told)?.[1] ?? told;
  }

  /** How many rows of a kind there are. */
  rowCount(kind: string): number {
    return this.now.rows.get(kind) ?? 0;
  }

  /** A complete recording. */
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

  /** The loaded parts of the compilation; if it was never opened, this is its entry in the index. */
  compilation(position: number): CompilationData {
    return this.held[position]!.data;
  }

  /** The value numbers of a graph's nodes, one per node, once its compilation is loaded. */
  graphValues(compilation: CompilationData, graph: number): readonly number[] {
    return this.about(compilation)?.graph_values[graph] ?? [];
  }

  /** Bytes of the results of a graph's operators, each storage once; -1 if a size is symbolic. */
  graphBytes(compilation: CompilationData, graph: number): number {
    return this.about(compilation)?.graph_bytes[graph] ?? NONE;
  }

  /** The length of each text of a stage, by its name. */
  codeLines(compilation: CompilationData, stage: number): ReadonlyMap<string, number> {
    return this.about(compilation)?.code_lines[stage] ?? new Map();
  }

  /** Its lookups in torch's caches. */
  cacheLookups(compilation: CompilationData): readonly CacheLookup[] {
    return this.about(compilation)?.cache_lookups ?? [];
  }

  private about(compilation: CompilationData): LoadedParts["about"] | undefined {
    return this.held.find(({ data }) => data === compilation)?.about;
  }

  /** Null for a stage without such a graph, and for a graph that is not loaded. */
  graph(compilation: CompilationData, stage: StageRecord, role: string): Graph | null {
    const index = stage.graphs.get(role);
    const snapshot = index === undefined ? undefined : compilation.graphs[index];
    if (!snapshot) return null;
    let graph = this.graphs.get(snapshot);
    if (!graph)
      this.graphs.set(snapshot, (graph = readGraph(snapshot, role, compilation, (number) => this.text(number))));
    return graph;
  }

  /** What a view must load to have a stage's graph; empty if the stage has no graph. */
  graphNeed(compilation: number, stage: number, role: string): Need[] {
    const graph = this.compilation(compilation).stages[stage]?.graphs.get(role);
    return graph === undefined ? [] : [{ what: "graph", compilation, graph }];
  }

  has(need: Need): boolean {
    if (need.what === "rows") return this.rowsHeld.has(need.kind);
    const held = this.held[need.compilation];
    if (!held) return true; // loading it would not help
    if (need.what === "compilation") return held.opened;
    return need.what === "graph" ? held.data.graphs[need.graph] !== undefined : held.code.has(need.stage);
  }

  /** Whether there is a kernel that can compute more than was recorded. */
  get asksKernel(): boolean {
    return this.source.whatIf !== undefined;
  }

  /** Takes a painting away. The index says so after `refresh`. */
  async unpaint(compilation: string, label: string): Promise<void> {
    await this.source.unpaint(compilation, label);
  }

  /** The compilation, partitioned in another way: its stages and facts. Null without a kernel. */
  whatIf(compilation: number, wish: Wish, wait: Wait): Promise<CompilationData> | null {
    return this.source.whatIf?.(this.compilation(compilation).id, wish, wait).then((part) => part.compilation) ?? null;
  }

  /** Loads the missing parts of `needs`. Null if all are loaded, as in a complete recording. */
  load(needs: readonly Need[]): Promise<void> | null {
    const waits = needs.flatMap((need) => (this.has(need) ? [] : (this.bring(need) ?? [])));
    return waits.length ? Promise.all(waits).then(() => undefined) : null;
  }

  private bring(need: Need): Promise<void> | null {
    const key = JSON.stringify(need);
    const under = this.coming.get(key);
    if (under) return under;
    const coming = this.fetch(need);
    if (!coming) return null;
    // After a failure too, so that it can be tried again.
    const done = coming.finally(() => this.coming.delete(key));
    this.coming.set(key, done);
    return done;
  }

  private fetch(need: Need): Promise<void> | null {
    if (need.what === "rows") return soon(this.source.rows(need.kind), (rows) => this.rowsHeld.set(need.kind, rows));
    const held = this.held[need.compilation]!;
    const { id } = held.data;
    return need.what === "compilation"
      ? soon(this.source.compilation(id), (part) => takeCompilation(held, part))
      : need.what === "graph"
        ? soon(this.source.graph(id, need.graph), (part) => takeGraph(held, need.graph, part))
        : soon(this.source.code(id, need.stage), (part) => takeCode(held, need.stage, part));
  }
}

function soon<T>(part: T | Promise<T>, take: (part: T) => void): Promise<void> | null {
  if (part instanceof Promise) return part.then(take);
  take(part);
  return null;
}

/** The stage before `index` that has a graph to compare with `role`: the same role, else the joint graph. */
export function previousGraph(
  compilation: CompilationData,
  index: number,
  role: string,
): { stage: number; role: string } | null {
  for (let i = index - 1; i >= 0; i--) {
    const graphs = compilation.stages[i]!.graphs;
    for (const candidate of [role, "joint", ...graphs.keys()]) {
      if (graphs.has(candidate)) return { stage: i, role: candidate };
    }
  }
  return null;
}

/** Whether its stages have times; stages from torch's log have none. */
export function timed(compilation: CompilationData): boolean {
  return !compilation.compile_id || compilation.stages.some((stage) => stage.elapsed_ns > 0);
}

export function isFloat(value: Wire): value is Float {
  return value instanceof Float;
}
