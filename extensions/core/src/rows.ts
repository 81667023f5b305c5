// The rows of a complete recording, as a kernel would send them (rows in aotviz/widgets/parts.py; a test compares them).

import { type GraphBreak, NONE, type Origin, type RecordingData, type RowsPart, type StageSpan } from "./wire";

const LISTS = ["guards", "metrics", "shapes", "graph_breaks", "cache_lookups"] as const;
const PEAK = "peak "; // and the id of a compilation
const OWN = "aotviz"; // the cache whose answer is in the index
const NO_EVENTS: RowsPart["events"] = {
  name: [],
  start_us: [],
  duration_us: [],
  parent: [],
  compilation: [],
  log: [],
  line: [],
  thread: [],
  args: [],
};

/** How many rows there are of each kind. */
export function rowCounts(data: RecordingData): ReadonlyMap<string, number> {
  const own = data.compilations.filter(isOwn).length;
  return new Map<string, number>([
    ...LISTS.map((name) => [name, data[name].length] as const),
    ["timeline", data.events.name.length + own],
    ["stacks", data.compilations.filter(({ stack }) => stack >= 0).length],
    ["links", links(data).length],
    ["ranks", data.rank_differences.length],
    ["overview", Number(data.overview !== null)],
    ["step", Number(data.step !== null)],
  ]);
}

/** The number of the text that says most about a graph break. */
export function breakText({ text, reason }: GraphBreak): number {
  return text >= 0 ? text : reason;
}

/** The rows of one kind; the other lists are empty. */
export function rowsOf(data: RecordingData, kind: string): RowsPart {
  const nothing: RowsPart = {
    compilations: data.compilations.map(({ id }) => id),
    text_table: { numbers: [], texts: [] },
    own: new Map(),
    logs: [],
    events: NO_EVENTS,
    restarts: [],
    stacks: [],
    guards: [],
    metrics: [],
    shapes: [],
    graph_breaks: [],
    cache_lookups: [],
    links: [],
    rank_differences: [],
    why: [],
    plain: data.plain,
    overview: null,
    peaks: [],
    step: null,
  };
  if (kind === "timeline")
    return {
      ...nothing,
      own: ownSpans(data),
      logs: data.logs,
      events: data.events,
      restarts: restarts(data),
      graph_breaks: data.graph_breaks,
      cache_lookups: data.cache_lookups.filter(({ cache }) => cache !== OWN),
      metrics: data.metrics.filter(({ fail_type, texts }) => fail_type || texts.has("restart_reasons")),
    };
  if (kind === "stacks")
    return { ...nothing, stacks: data.compilations.map(({ stack }) => stack), metrics: data.metrics };
  if (kind === "ranks") return { ...nothing, rank_differences: data.rank_differences };
  if (kind === "why") return { ...nothing, why: data.why };
  if (kind === "overview") return { ...nothing, overview: data.overview };
  if (kind.startsWith(PEAK))
    return { ...nothing, peaks: data.peaks.filter(({ compilation }) => PEAK + compilation === kind) };
  if (kind === "step") return { ...nothing, step: data.step };
  if (kind === "links") return { ...nothing, links: links(data) };
  const list = LISTS.find((name) => name === kind);
  return list ? { ...nothing, [list]: data[list] } : nothing;
}

function isOwn({ log, started_unix_ns }: RecordingData["compilations"][number]): boolean {
  return log === NONE && started_unix_ns > 0;
}

/** When the stages of aotviz's own pipeline ran. */
function ownSpans(data: RecordingData): ReadonlyMap<string, StageSpan[]> {
  return new Map(
    data.compilations
      .filter(isOwn)
      .map(({ id, stages }) => [
        id,
        stages
          .filter(({ replayed, elapsed_ns }) => !replayed && elapsed_ns > 0)
          .map(({ name, started_ns, elapsed_ns, late }) => ({ name, started_ns, elapsed_ns, late })),
      ]),
  );
}

function links({ artifacts, strings }: RecordingData): RowsPart["links"] {
  return artifacts.filter(({ type }) => strings[type] === "link");
}

/** Where each later attempt of a compilation begins: the earliest record of it, in order of time. */
function restarts(data: RecordingData): Origin[] {
  const first = new Map<string, Origin>();
  for (const rows of Object.values(data) as unknown[]) {
    if (!Array.isArray(rows)) continue;
    for (const row of rows as readonly { readonly origin?: Origin }[]) {
      const origin = row?.origin;
      if (!origin) break; // rows of one list are of one type
      if (origin.attempt < 1 || origin.unix_ns <= 0) continue;
      const key = `${origin.compilation} ${origin.attempt}`;
      const known = first.get(key);
      if (!known || origin.unix_ns < known.unix_ns) first.set(key, origin);
    }
  }
  return [...first.values()].sort((a, b) => a.unix_ns - b.unix_ns);
}
