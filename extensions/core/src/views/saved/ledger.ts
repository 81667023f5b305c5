// The memory cost of the backward, as numbers: the values saved for it, the values that it recomputes, and the bytes
// held at each of its nodes, by module or operator. These are pure functions; the view draws the results.

import type { CompilationData, SavedTensorRecord } from "../../wire";

export type Fate = "saved" | "shared" | "input" | "recomputed";

export interface Row {
  readonly name: string;
  // The caller holds an input anyway, so saving it costs nothing. Neither does a value in another saved value's memory.
  readonly fate: Fate;
  readonly kind: string; // "tensor" | "symint"
  readonly dtype: string;
  readonly shape: readonly (number | string)[];
  readonly nbytes: number | null; // of its elements
  readonly cost: number | null; // bytes of memory held because of it; all sums are of these
  readonly whose: string; // the input or other saved value whose memory it is in; "" if it has its own
  readonly producer: string;
  readonly module: string;
  readonly source: string;
  readonly why: string;
  readonly donated: boolean;
  readonly whyDonated: string;
  readonly hook: string;
  readonly checked: boolean;
  readonly consumers: readonly string[];
  readonly from: number; // position in the backward graph from which it is held; -1: from the forward on
  readonly until: number; // of its last reader; -1 if unknown
  readonly heldUntil: number; // of the last reader of any value in its memory; -1 if unknown
}

/**
 * Bytes of memory held because this value is saved: those of its whole storage, counted for one of the values in it (as
 * `cost` in kept.py).
 */
export function cost(row: SavedTensorRecord): number | null {
  if (row.held_bytes !== -1) return row.held_bytes;
  return isInput(row) ? 0 : row.nbytes; // the storages are unknown, as in a torch log
}

function isInput({ name, memory_of }: SavedTensorRecord): boolean {
  return memory_of !== "" || /^primals_\d+$/.test(name);
}

export function rowsOf({ saved_tensors, recomputed }: Pick<CompilationData, "saved_tensors" | "recomputed">): Row[] {
  const kept = saved_tensors.map((row): Row => ({
    name: row.name,
    fate: isInput(row) ? "input" : row.shares_with ? "shared" : "saved",
    kind: row.kind,
    dtype: row.dtype,
    shape: row.shape,
    nbytes: row.nbytes,
    cost: cost(row),
    whose: row.memory_of || row.shares_with,
    producer: row.producer,
    module: row.module,
    source: row.source,
    why: row.why,
    donated: row.donated,
    whyDonated: row.why_donated,
    hook: row.hook,
    checked: row.version_checked,
    consumers: row.consumers,
    from: -1,
    until: row.dies_at,
    heldUntil: Math.max(row.held_until, row.dies_at),
  }));
  const again = recomputed.map((row): Row => ({
    name: row.name,
    fate: "recomputed",
    kind: "tensor",
    dtype: row.dtype,
    shape: row.shape,
    nbytes: row.nbytes,
    cost: row.nbytes,
    whose: "",
    producer: row.producer,
    module: row.module,
    source: row.source,
    why:
      row.nbytes === 0 && row.dtype
        ? "the backward recomputes this view, which has no memory of its own"
        : "the backward recomputes this value, so that the forward does not have to save it",
    donated: false,
    whyDonated: "",
    hook: "",
    checked: false,
    consumers: row.consumers,
    from: row.made_at,
    until: row.dies_at,
    heldUntil: row.dies_at,
  }));
  return [...kept, ...again];
}

export interface Totals {
  readonly saved: number; // bytes that are saved only for the backward
  readonly values: number; // values that share memory included
  readonly inputs: number; // values that are inputs
  readonly donated: number; // bytes
  readonly recomputed: number; // values
  readonly spared: number; // bytes of them
  readonly peak: number; // bytes held at most while the backward runs
}

export function totals(rows: readonly Row[]): Totals {
  const of = (fate: Fate): Row[] => rows.filter((row) => row.fate === fate);
  return {
    saved: sum(of("saved")),
    values: of("saved").length + of("shared").length,
    inputs: of("input").length,
    donated: sum(rows.filter(({ donated }) => donated)),
    recomputed: of("recomputed").length,
    spared: sum(of("recomputed")),
    peak: Math.max(0, ...held(rows).map(({ saved, again }) => saved + again)),
  };
}

export interface Step {
  readonly at: number; // position in the backward graph
  readonly saved: number; // bytes of saved values still to be read
  readonly again: number; // bytes of recomputed values
}

/**
 * The bytes held when each node of the backward runs, at the nodes where they change. Memory is freed when all values
 * in it have been read.
 */
export function held(rows: readonly Row[]): Step[] {
  const changes = new Map<number, [number, number]>();
  const change = (at: number, which: 0 | 1, bytes: number): void => {
    const both = changes.get(at) ?? [0, 0];
    both[which] += bytes;
    changes.set(at, both);
  };
  for (const { fate, cost, from, heldUntil } of rows) {
    if (!cost) continue;
    const which = fate === "recomputed" ? 1 : 0;
    change(Math.max(0, from), which, cost);
    change((heldUntil < 0 ? Math.max(0, from) : heldUntil) + 1, which, -cost);
  }
  let [saved, again] = [0, 0];
  return [...changes]
    .sort(([a], [b]) => a - b)
    .map(([at, both]) => ({ at, saved: (saved += both[0]), again: (again += both[1]) }));
}

/** Whether the curve of `held` can be drawn: this needs the readers of the saved values. */
export function knowsReaders(rows: readonly Row[]): boolean {
  const kept = rows.filter(({ fate, cost }) => fate === "saved" && cost);
  return kept.length === 0 || kept.some(({ heldUntil }) => heldUntil >= 0);
}

export type Grouping = "module" | "producer";

/** Bytes by module or by operator, the largest first. */
export function grouped(rows: readonly Row[], by: Grouping): { name: string; saved: number; again: number }[] {
  const groups = new Map<string, { name: string; saved: number; again: number }>();
  for (const row of rows) {
    if (!row.cost) continue;
    const name = groupOf(row, by);
    const group = groups.get(name) ?? { name, saved: 0, again: 0 };
    if (row.fate === "recomputed") group.again += row.cost;
    else group.saved += row.cost;
    groups.set(name, group);
  }
  return [...groups.values()].sort((a, b) => b.saved + b.again - a.saved - a.again);
}

export function groupOf(row: Row, by: Grouping): string {
  return by === "module" ? row.module || "(no module)" : row.producer;
}

/**
 * The rows of one ledger that the other lacks, by name: of values saved only for the backward, or of recomputed values.
 */
export function onlyIn(rows: readonly Row[], other: readonly Row[], what: "kept" | "recomputed"): Row[] {
  const wanted = ({ fate }: Row): boolean =>
    what === "kept" ? fate === "saved" || fate === "shared" : fate === "recomputed";
  const there = new Set(other.filter(wanted).map(({ name }) => name));
  return rows.filter((row) => wanted(row) && !there.has(row.name));
}

function sum(rows: readonly Row[]): number {
  return rows.reduce((total, { cost }) => total + (cost ?? 0), 0);
}
