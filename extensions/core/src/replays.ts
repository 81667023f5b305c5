// What a compilation found in torch's caches, and so did not compile, in its place among the stages.

import { type CacheLookup, type CompilationData } from "./wire";

export interface Replay {
  readonly cache: string; // in words
  readonly what: string; // that was found
  readonly saved_ns: number; // what compiling it had taken, 0 if unknown
  readonly after: number; // so many stages had been logged by then
}

const CACHES: Readonly<Record<string, readonly [cache: string, what: string]>> = {
  aotautograd: ["AOTAutograd's cache", "the compiled program was loaded: its graphs, their code and the wrapper"],
  fx: ["Inductor's cache of graphs", "the code of a graph was loaded"],
  "fx bundled": ["Inductor's cache of graphs", "the code of a graph was loaded with the program"],
};

const SLACK_NS = 1_000; // numbers of that size are rounded; logs tell microseconds

/** In the order of time. `text` gives the text of a number. */
export function replays(
  compilation: CompilationData,
  lookups: readonly CacheLookup[],
  text: (number: number) => string,
): Replay[] {
  return [...ours(compilation), ...theirs(compilation, lookups, text)];
}

/** Of our own pipeline, a stage says what Inductor found. */
function ours({ stages }: CompilationData): Replay[] {
  return stages.flatMap(({ replays: found }, i) =>
    [...found].map(([role, saved_ns]) => ({
      cache: CACHES["fx"]![0],
      what: `the code of the ${role} graph was loaded`,
      saved_ns,
      after: i + 1,
    })),
  );
}

function theirs(
  compilation: CompilationData,
  lookups: readonly CacheLookup[],
  text: (number: number) => string,
): Replay[] {
  return lookups
    .filter(({ outcome }) => outcome === "hit")
    .map((lookup) => {
      const [cache, what] = CACHES[lookup.cache] ?? [`the ${lookup.cache} cache`, "it was loaded"];
      const since = lookup.origin.unix_ns - compilation.started_unix_ns + SLACK_NS;
      return {
        cache,
        what,
        saved_ns: saved(lookup, text),
        after: compilation.stages.filter(({ started_ns }) => started_ns <= since).length,
      };
    });
}

function saved({ fields }: CacheLookup, text: (number: number) => string): number {
  for (const [name, scale] of [
    ["time_saved_ns", 1],
    ["time_saved_ms", 1e6],
  ] as const) {
    const number = Number(text(fields.get(name) ?? -1) || NaN);
    if (number > 0) return number * scale;
  }
  return 0;
}
