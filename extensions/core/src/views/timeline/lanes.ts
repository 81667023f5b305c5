// What happened when, in which process: lanes of spans and marks, from the rows of a log and from the stages of aotviz's
// own pipeline (aotviz/recording/spans.py does the same for traces). Long times without any span are folded, so that a
// job that computes for hours between two compilations still shows both.

import { called } from "../../called";
import { unquoted } from "../../dom";
import { breakText } from "../../rows";
import type { Rows } from "../../source";
import { NONE, type RecordingIndex, type RowsPart } from "../../wire";

export type Kind = "dynamo" | "aot" | "inductor" | "other"; // the part of the compiler
export type MarkKind = "hit" | "miss" | "bypass" | "restart" | "break" | "failure";

export interface Span {
  readonly name: string;
  readonly start: number; // microseconds since the timeline's beginning
  readonly end: number;
  readonly finished: boolean; // else its end is unknown, and `end` is the end of the timeline
  readonly compilation: number; // position in the index, or -1
  readonly stage: string; // that it belongs to, "" if unknown
  readonly kind: Kind;
  readonly level: number; // row in its lane
  readonly parent: Span | null;
}

export interface Mark {
  readonly kind: MarkKind;
  readonly at: number; // microseconds since the timeline's beginning
  readonly compilation: number; // position in the index, or -1
  readonly words: string; // one sentence
}

export interface Lane {
  readonly name: string;
  readonly rows: readonly (readonly Span[])[]; // by level, in the order of time
  readonly marks: readonly Mark[];
  readonly spans: number;
}

export interface Gap {
  readonly start: number; // microseconds since the beginning
  readonly end: number;
}

export interface Lanes {
  readonly lanes: readonly Lane[];
  readonly began: number; // unix time in microseconds
  readonly length: number; // microseconds
  readonly gaps: readonly Gap[]; // without any span, folded
}

const GAP_SHARE = 0.25; // a gap longer than this share of the busy time is folded
export const FOLDED_SHARE = 0.07; // of the busy time: the width of a folded gap

/** torch's events -> the stage that they belong to, as in aotviz/logs/stages.py, and the part of the compiler. */
const KNOWN: readonly (readonly [RegExp, string, Kind])[] = [
  [/^(dynamo|entire_frame_compile|compile_attempt_\d+|bytecode_tracing|build_guards|gc)$/, "dynamo", "dynamo"],
  [/^(insert_deferred_runtime_asserts|automatic_dynamic|pgo\.)/, "dynamo", "dynamo"],
  [/pre_grad_passes/, "pre-grad passes", "inductor"],
  [/joint_graph_passes/, "joint passes", "inductor"],
  [/post_grad_passes/, "post-grad passes", "inductor"],
  [/^aot_trace_joint_graph$/, "joint", "aot"],
  [/^min_cut_rematerialization_partition$/, "partition", "aot"],
  [/^(aot_|create_aot_dispatcher_function|compiled_autograd|backend_compile)/, "", "aot"],
  [/^(entire_backward_compile|compile_fx|inductor_|fx_|CacheBase)/, "lower", "inductor"],
  [
    /^(GraphLowering|Scheduler|PythonWrapper|PyCodeCache|Triton|async_compile|compile_file|code_gen)/,
    "lower",
    "inductor",
  ],
];
const OWN_KINDS: Readonly<Record<string, Kind>> = { dynamo: "dynamo", lower: "inductor", "lower backward": "inductor" };
const SAID_BY_MARKS = /_cache_(hit|miss|bypass)$/;

interface Loose {
  name: string;
  start: number; // unix time in microseconds
  duration: number; // -1 if unknown
  compilation: number;
  stage: string;
  kind: Kind;
  parent: Loose | null;
  made?: Span;
}

export function lanesOf(rows: Rows, index: RecordingIndex): Lanes {
  const { part, text } = rows;
  const positions = new Map(index.compilations.map(({ id }, i) => [id, i]));
  const at = (number: number): number => positions.get(part.compilations[number] ?? "") ?? NONE;
  const rankOf = (log: number, compilation: number): number => {
    const rank = index.compilations[at(compilation)]?.rank ?? NONE;
    return rank >= 0 ? rank : (part.logs[log]?.rank ?? NONE);
  };
  const found = new Map<string, { rank: number; log: number; spans: Loose[]; marks: Mark[] }>();
  const lane = (rank: number, log: number): { spans: Loose[]; marks: Mark[] } => {
    if (log < 0) {
      const same = [...found.values()].filter((other) => other.rank === rank);
      if (same.length === 1) return same[0]!;
    }
    const key = `${rank} ${log}`;
    let one = found.get(key);
    if (!one) found.set(key, (one = { rank, log, spans: [], marks: [] }));
    return one;
  };
  addEvents(part, text, at, (log, compilation) => lane(rankOf(log, compilation), log).spans);
  addOwn(part, index, (rank) => lane(rank, NONE));
  for (const [mark, log, compilation] of logged(rows, at)) lane(rankOf(log, compilation), log).marks.push(mark);
  const used = [...found.values()].filter(({ spans, marks }) => spans.length || marks.length);
  used.sort((a, b) => a.rank - b.rank || a.log - b.log);
  for (const { spans } of used)
    for (const span of spans) {
      const head = index.compilations[span.compilation];
      if (head && !span.parent && span.name !== called(head)) span.name += ` · ${called(head)}`;
    }
  return placed(used, named(used, part));
}

/** The events of a log, but for those that a mark says. */
function addEvents(
  { events }: RowsPart,
  text: Rows["text"],
  at: (number: number) => number,
  lane: (log: number, compilation: number) => Loose[],
): void {
  const made: (Loose | null)[] = [];
  const parts = new Map<string, readonly [string, Kind] | null>(); // by name: there are few
  for (let row = 0; row < events.name.length; row++) {
    const name = text(events.name[row]!);
    const [number, up] = [events.compilation[row] ?? NONE, events.parent[row] ?? NONE];
    const duration = events.duration_us[row] ?? 0;
    if (duration === 0 && SAID_BY_MARKS.test(name)) {
      made.push(null);
      continue;
    }
    let part = parts.get(name);
    if (part === undefined) {
      const known = KNOWN.find(([pattern]) => pattern.test(name));
      parts.set(name, (part = known ? [known[1], known[2]] : null));
    }
    const parent = up >= 0 && up < row ? made[up]! : null; // only an earlier one: no cycles
    const span: Loose = {
      name,
      start: events.start_us[row] ?? 0,
      duration,
      compilation: at(number),
      stage: part?.[0] || (parent?.stage ?? ""),
      kind: part?.[1] ?? parent?.kind ?? "other",
      parent,
    };
    made.push(span);
    lane(events.log[row] ?? NONE, number).push(span);
  }
}

/** A compilation of aotviz's own pipeline: a span for all stages until it returned, and one for each stage. */
function addOwn(
  { own }: RowsPart,
  index: RecordingIndex,
  lane: (rank: number) => { spans: Loose[]; marks: Mark[] },
): void {
  index.compilations.forEach((head, compilation) => {
    const stages = own.get(head.id);
    if (!stages) return;
    const { spans, marks } = lane(head.rank);
    const began = head.started_unix_ns / 1e3;
    const returned = Math.max(0, ...stages.filter(({ late }) => !late).map((s) => s.started_ns + s.elapsed_ns)) / 1e3;
    const whole: Loose = {
      name: called(head),
      start: began,
      duration: returned,
      compilation,
      stage: "",
      kind: "other",
      parent: null,
    };
    if (returned) spans.push(whole);
    for (const { name, started_ns, elapsed_ns, late } of stages)
      spans.push({
        name,
        start: began + started_ns / 1e3,
        duration: elapsed_ns / 1e3,
        compilation,
        stage: name,
        kind: OWN_KINDS[name] ?? "aot",
        parent: late ? null : whole,
      });
    const end = began + Math.max(0, ...stages.map((stage) => stage.started_ns + stage.elapsed_ns)) / 1e3;
    if (head.cache)
      marks.push({
        kind: cacheKind(head.cache.outcome),
        at: began,
        compilation,
        words: `aotviz's cache: ${head.cache.outcome}${head.cache.words && `: ${head.cache.words}`}`,
      });
    if (head.error)
      marks.push({
        kind: "failure",
        at: end,
        compilation,
        words: `${head.error.ran_in_eager ? "ran in eager" : `failed in ${head.error.stage}`}: ${head.error.message}`,
      });
  });
}

/** The marks of a log, each with the log and the compilation that it is about. */
function logged(
  { part: { cache_lookups, restarts, graph_breaks, metrics }, text, plain }: Rows,
  at: (number: number) => number,
): [Mark, number, number][] {
  const found: [Mark, number, number][] = [];
  const put = (
    kind: MarkKind,
    us: number,
    { log, compilation }: { log: number; compilation: number },
    words: string,
  ) => {
    if (us > 0) found.push([{ kind, at: us, compilation: at(compilation), words }, log, compilation]);
  };
  for (const { origin, cache, outcome, reason } of cache_lookups)
    put(cacheKind(outcome), origin.unix_ns / 1e3, origin, because(`${cache} cache: ${outcome}`, text(reason)));
  const why = new Map(
    metrics.map(({ origin, texts }) => [origin.compilation, plain(texts.get("restart_reasons") ?? -1)]),
  );
  for (const origin of restarts) {
    const began = `Dynamo started again (attempt ${origin.attempt + 1})`;
    put("restart", origin.unix_ns / 1e3, origin, because(began, why.get(origin.compilation) ?? ""));
  }
  for (const row of graph_breaks)
    put(
      "break",
      row.origin.unix_ns / 1e3,
      row.origin,
      because(`graph break at ${text(row.place)}`, plain(breakText(row))),
    );
  for (const { origin, fail_type, fail_reason, end_unix_s } of metrics.filter((one) => one.fail_type))
    put("failure", end_unix_s * 1e6, origin, because(`failed with ${fail_type}`, plain(fail_reason)));
  return found;
}

function because(what: string, reason: string): string {
  return reason ? `${what}: ${unquoted(reason.split("\n")[0]!)}` : what;
}

function cacheKind(outcome: string): MarkKind {
  return outcome === "hit" || outcome === "bypass" ? outcome : "miss";
}

function named(lanes: readonly { rank: number; log: number }[], { logs }: RowsPart): string[] {
  const short = lanes.map(({ rank, log }) => {
    if (rank >= 0) return `rank ${rank}`;
    const wrote = logs[log]?.processes ?? [];
    return wrote.length === 1 ? `process ${wrote[0]}` : (logs[log]?.name ?? "this process");
  });
  return short.map((name, i) => {
    if (short.indexOf(name) === short.lastIndexOf(name)) return name;
    return `${name} (${logs[lanes[i]!.log]?.name ?? "aotviz"})`;
  });
}

/** The lanes with each span in a row of its own depth; a span that overlaps another one is a row lower. */
function placed(found: readonly { spans: Loose[]; marks: Mark[] }[], names: readonly string[]): Lanes {
  let [began, ended] = [Infinity, -Infinity];
  for (const { spans, marks } of found) {
    for (const { start, duration } of spans) {
      began = Math.min(began, start);
      ended = Math.max(ended, start + Math.max(0, duration));
    }
    for (const { at } of marks) [began, ended] = [Math.min(began, at), Math.max(ended, at)];
  }
  if (began > ended) return { lanes: [], began: 0, length: 0, gaps: [] };
  const length = Math.max(1, ended - began);
  const lanes = found.map(({ spans, marks }, i): Lane => {
    const rows: Span[][] = [];
    spans.sort((a, b) => a.start - b.start); // stable: of two that begin together, the outer one is first
    for (const loose of spans) {
      const finished = loose.duration >= 0;
      const start = loose.start - began;
      const end = finished ? start + loose.duration : length;
      const parent = loose.parent?.made ?? null;
      let level = parent ? parent.level + 1 : 0;
      while (last(rows[level]) !== undefined && last(rows[level])!.end > start + SLACK_US) level++;
      const { name, compilation, stage, kind } = loose;
      loose.made = { name, start, end, finished, compilation, stage, kind, level, parent };
      while (rows.length <= level) rows.push([]);
      rows[level]!.push(loose.made);
    }
    const moved = marks.map((mark) => ({ ...mark, at: mark.at - began })).sort((a, b) => a.at - b.at);
    return { name: names[i]!, rows, marks: moved, spans: spans.length };
  });
  return { lanes, began, length, gaps: idle(lanes, length) };
}

const SLACK_US = 1; // torch rounds times

function last<T>(list: readonly T[] | undefined): T | undefined {
  return list?.[list.length - 1];
}

/** The long times in which no lane has a span or a mark. */
function idle(lanes: readonly Lane[], length: number): Gap[] {
  const busy = lanes.flatMap(({ rows, marks }) => [
    ...(rows[0] ?? []).filter(({ finished }) => finished).map(({ start, end }) => [start, end] as const),
    ...marks.map(({ at }) => [at, at] as const),
  ]);
  busy.sort((a, b) => a[0] - b[0]);
  const all: Gap[] = [];
  let reached = 0;
  for (const [start, end] of busy) {
    if (start > reached) all.push({ start: reached, end: start });
    reached = Math.max(reached, end);
  }
  const spent = length - all.reduce((sum, { start, end }) => sum + end - start, 0);
  return all.filter(({ start, end }) => end - start > GAP_SHARE * Math.max(1, spent));
}
