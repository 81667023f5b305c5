import { readFileSync } from "node:fs";

import { describe, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { Recording } from "../src/model";
import { replays } from "../src/replays";
import type { CacheLookup, CompilationData } from "../src/wire";

const whole = await decodeRecording(new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url))));
const asked = (cache: string, outcome: string): CacheLookup => ({
  origin: { log: 0, line: 7, compilation: 1, attempt: 0, unix_ns: whole.compilations[1]!.started_unix_ns + 950_000 },
  cache,
  outcome,
  key: "f3k",
  components: [],
  component_hashes: [],
  reason: -1,
  place: -1,
  nearest: "",
  differs: [],
  saved_ns: 0,
  saved_at_unix_s: 0,
  fields: new Map([["time_saved_ns", whole.strings.length]]),
});
const recording = Recording.whole({
  ...whole,
  strings: [...whole.strings, "41000000"],
  cache_lookups: [asked("fx", "hit"), asked("aotautograd", "miss")],
});
await recording.load([0, 1].map((compilation) => ({ what: "compilation", compilation }) as const));
const [training, inference] = [recording.compilation(0), recording.compilation(1)];
const idle = training.stages.map((stage) => ({ ...stage, replays: new Map() }));
const found = (lookups: readonly CacheLookup[], compilation: CompilationData = inference): ReturnType<typeof replays> =>
  replays(compilation, lookups, (number) => recording.text(number));

describe("what was found in a cache", () => {
  test("has its place by its time, and what it took to compile", () => {
    const lookups = recording.cacheLookups(inference);
    expect(lookups.map(({ outcome }) => outcome)).toEqual(["hit", "miss"]);
    expect(found(lookups)).toEqual([
      { cache: "Inductor's FX graph cache", what: "the code of a graph was loaded", saved_ns: 41e6, after: 2 },
    ]);
    const [hit] = lookups as [CacheLookup];
    const at = (unix_ns: number): CacheLookup => ({ ...hit, origin: { ...hit.origin, unix_ns } });
    expect(
      found([at(inference.started_unix_ns - 1e6), at(inference.started_unix_ns + 1e9)]).map(({ after }) => after),
    ).toEqual([0, 3]);
    expect(found([{ ...hit, cache: "moon", fields: new Map() }])).toMatchObject([
      { cache: "the moon cache", saved_ns: 0 },
    ]);
  });
  test("is nothing where nothing was asked", () => {
    expect(recording.cacheLookups(training)).toEqual([]);
    expect(found([], { ...training, stages: idle })).toEqual([]);
  });
  test("of our own pipeline follows the stage that says so", () => {
    const stages = idle.map((stage, i) => (i === 4 ? { ...stage, replays: new Map([["forward", 2e9]]) } : stage));
    expect(found([], { ...training, stages })).toEqual([
      {
        cache: "Inductor's FX graph cache",
        what: "the code of the forward graph was loaded",
        saved_ns: 2e9,
        after: 5,
      },
    ]);
  });
});
