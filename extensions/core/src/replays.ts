// The cache hits of a compilation: what it loaded from torch's caches instead of compiling, placed among the stages.

import { type CacheLookup, type CompilationData } from "./wire";

export interface Replay {
  readonly cache: string; // in words
  readonly what: string; // what the cache had
  readonly saved_ns: number; // the time that compiling it took originally, 0 if unknown
  readonly after: number; // the number of stages logged before it
}

const CACHES: Readonly<Record<string, readonly [cache: string, what: string]>> = {
  aotautograd: ["AOTAutograd's cache", "the compiled program was loaded: its graphs, their code and the wrapper"],
  fx: ["Inductor's FX graph cache", "the code of a graph was loaded"],
  "fx bundled": ["Inductor's FX graph cache", "the code of a graph was loaded with the program"],
};

const OWN = "aotviz"; // the stages of a hit in it are in the recording, and views/stages/cache.ts tells the answer
const SLACK_NS = 1_000; // numbers of this size are rounded, and logs have microseconds

/** In order of time. `text` looks up the text of a number. */
export function replays(
  compilation: CompilationData,
  lookups: readonly CacheLookup[],
  text: (number: number) => string,
): Replay[] {
  return [...ours(compilation), ...theirs(compilation, lookups, text)];
}

/** In our own pipeline, a stage says what Inductor found in its cache. */
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
    .filter(({ cache, outcome }) => outcome === "hit" && cache !== OWN)
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
