// The loaded parts of a compilation. Its parts (aotviz/widgets/parts.py) arrive one by one and fill one record.

import {
  type CodePart,
  type CompilationData,
  type CompilationHead,
  type CompilationPart,
  type GraphPart,
  NONE,
} from "./wire";

/** The loaded parts of a compilation; the lists of the record fill as parts arrive. */
export interface LoadedParts {
  readonly data: { -readonly [field in keyof CompilationData]: CompilationData[field] };
  about: Pick<CompilationPart, "graph_values" | "graph_bytes" | "code_lines" | "cache_lookups">;
  readonly code: Set<number>; // stages whose texts are loaded
  opened: boolean; // whether its stages and facts are loaded
}

/** A compilation of which only the head is known. */
export function unopened(head: CompilationHead): LoadedParts {
  return {
    data: outline(head),
    about: { graph_values: [], graph_bytes: [], code_lines: [], cache_lookups: [] },
    code: new Set(),
    opened: false,
  };
}

function outline(head: CompilationHead): CompilationData {
  const { id, name, kind, started_unix_ns, compile_id, frame, attempts, rank, because, options, error, cache } = head;
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
    replayed: null,
    log: NONE,
    stack: NONE,
    reset: 0,
    stages: [],
    graphs: [],
    values: [],
    inputs: [],
    outputs: [],
    saved_tensors: [],
    wrapper: null,
    graph_texts: [],
    recomputed: [],
    storages: [],
    visits: [],
    run: null,
    sizes: new Map(),
  };
}

export function takeCompilation(held: LoadedParts, part: CompilationPart): void {
  const { values, graphs } = held.data;
  Object.assign(held.data, part.compilation);
  if (!part.compilation.values.length) held.data.values = values; // the graphs bring them
  held.data.graphs = graphs;
  held.about = part;
  held.opened = true;
}

export function takeGraph({ data }: LoadedParts, number: number, part: GraphPart): void {
  part.value_numbers.forEach((value, i) => (data.values[value] = part.values[i]!));
  data.graphs[number] = part.graph;
}

export function takeCode({ data, code }: LoadedParts, stage: number, part: CodePart): void {
  (data.stages[stage] as { code: ReadonlyMap<string, string> }).code = part.code;
  code.add(stage);
}
