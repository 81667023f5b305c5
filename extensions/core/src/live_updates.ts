// Finds what a running process has recorded since the page last asked. A compilation of our own pipeline only grows:
// graphs, values and texts keep their numbers, so loaded ones stay. The compilation of a torch log may be ordered
// differently when more of the log is read, so a changed one is loaded again.

import { type LoadedParts, unopened } from "./loaded_parts";
import type { CompilationData, CompilationHead, CompilationPart, RecordingIndex } from "./wire";

export interface LiveUpdate {
  readonly index: RecordingIndex;
  readonly held: readonly LoadedParts[];
  /** The new position of each compilation, by its old position; -1 if it was dropped. */
  readonly moved: readonly number[];
  /** In words, e.g. "3 more stages". */
  readonly said: string;
}

type Load = (id: string) => CompilationPart | Promise<CompilationPart>;

/** Compares two indexes, and loads what is new in the open compilations. Null if nothing is new. */
export async function liveUpdate(
  before: RecordingIndex,
  after: RecordingIndex,
  held: readonly LoadedParts[],
  open: number,
  load: Load,
): Promise<LiveUpdate | null> {
  if (same(before, after)) return null;
  const index = keeping(before.compilations[open], after);
  const old = new Map(before.compilations.map((head, i) => [head.id, { head, held: held[i]!, position: i }]));
  const moved = held.map(() => -1);
  let stages = 0;
  let added = 0;
  const now = await Promise.all(
    index.compilations.map(async (head, position) => {
      const known = old.get(head.id);
      if (!known) {
        added++;
        return unopened(head);
      }
      moved[known.position] = position;
      if (same(known.head, head)) return known.held;
      if (!known.held.opened) return unopened(head);
      const part = await load(head.id);
      stages += Math.max(0, part.compilation.stages.length - known.held.data.stages.length);
      grow(known.held, part);
      return known.held;
    }),
  );
  return {
    index,
    held: now,
    moved,
    said: [more(added, "compilation"), more(stages, "stage")].filter((text) => text).join(", "),
  };
}

/** The index with the open compilation, even if the kernel has dropped it. */
function keeping(open: CompilationHead | undefined, index: RecordingIndex): RecordingIndex {
  const gone = open && !index.compilations.some(({ id }) => id === open.id);
  return gone ? { ...index, compilations: [open, ...index.compilations] } : index;
}

function grow(held: LoadedParts, part: CompilationPart): void {
  const { data } = held;
  const next = {
    ...part.compilation,
    graphs: data.graphs,
    values: part.compilation.values.length ? part.compilation.values : data.values,
  } as LoadedParts["data"];
  if (data.compile_id) {
    next.graphs = [];
    held.code.clear();
  } else {
    for (const stage of held.code)
      (next.stages[stage] as { code: ReadonlyMap<string, string> }).code = data.stages[stage]!.code;
  }
  next.stages = next.stages.map((stage, i) => (same(data.stages[i], stage) ? data.stages[i]! : stage));
  for (const field of Object.keys(next) as (keyof CompilationData)[]) {
    // An unchanged part stays the same object, so that its views are not redrawn.
    if (!same(data[field], next[field])) Object.assign(data, { [field]: next[field] });
  }
  held.about = part;
}

function more(count: number, noun: string): string {
  return count > 0 ? `${count} more ${noun}${count === 1 ? "" : "s"}` : "";
}

/** Whether two parts of a recording are equal. */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((part, i) => same(part, b[i]));
  if (a instanceof Map)
    return b instanceof Map && a.size === b.size && [...a].every(([key, part]) => same(part, b.get(key)));
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length &&
    names.every((name) => same((a as Record<string, unknown>)[name], (b as Record<string, unknown>)[name]))
  );
}
