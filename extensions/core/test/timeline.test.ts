import { readFileSync } from "node:fs";

import { beforeAll, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { type Rows, WholeSource } from "../src/source";
import { lanesOf } from "../src/views/timeline/lanes";
import { Scale, ticks, time, zoomed } from "../src/views/timeline/scale";
import type { EventTable, RecordingData } from "../src/wire";

let data: RecordingData;
beforeAll(async () => {
  data = await decodeRecording(new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url))));
});

/** Rows of a log of two ranks, from [name, start, duration, parent, compilation, log] of each event. */
function rows(events: readonly (readonly [string, number, number, number, number, number])[]): Rows {
  const names = events.map(([name]) => name);
  const column = (i: number): number[] => events.map((event) => event[i] as number);
  const nothing = events.map(() => -1);
  const table: EventTable = {
    name: names.map((_, i) => i),
    start_us: column(1),
    duration_us: column(2),
    parent: column(3),
    compilation: column(4),
    log: column(5),
    line: nothing,
    thread: nothing,
    args: nothing,
  };
  const log = { nbytes: 0, lines: 0, records: new Map(), unknown: new Map(), bad: [], bad_lines: 0, torch: "" };
  const { part } = new WholeSource(data).rows("guards");
  const logs = [
    { ...log, name: "a.log", rank: 0, processes: [7] },
    { ...log, name: "b.log", rank: 1, processes: [8] },
  ];
  const text = (number: number): string => names[number] ?? "";
  return { part: { ...part, logs, events: table }, text, plain: text };
}
const index = (): ReturnType<WholeSource["index"]> => new WholeSource(data).index();

test("a recording of aotviz's own pipeline has a lane, a span a compilation and one a stage, at its time", () => {
  const source = new WholeSource(data);
  const { lanes, began } = lanesOf(source.rows("timeline"), source.index());
  const spans = lanes.flatMap((lane) => lane.rows.flat());
  for (const [i, compilation] of data.compilations.entries())
    for (const stage of compilation.stages.filter(({ elapsed_ns }) => elapsed_ns > 0)) {
      const span = spans.find((one) => one.compilation === i && one.stage === stage.name)!;
      expect(span.start).toBeCloseTo((compilation.started_unix_ns + stage.started_ns) / 1e3 - began, 0);
      expect(span.end - span.start).toBeCloseTo(stage.elapsed_ns / 1e3, 0);
    }
});

test("events are in the lane of their rank, below their parents, and belong to the stage of what is around them", () => {
  const { lanes } = lanesOf(
    rows([
      ["dynamo", 100, 50, -1, 0, 0],
      ["aot_trace_joint_graph", 110, 20, 0, 0, 0],
      ["a pass", 112, 3, 1, 0, 0],
      ["dynamo", 120, 10, -1, 1, 1],
      ["autograd_cache_hit", 130, 0, 0, 0, 0],
    ]),
    index(),
  );
  expect(lanes.map(({ name, spans }) => [name, spans])).toEqual([
    ["rank 0", 3],
    ["rank 1", 1],
  ]);
  const { name } = data.compilations[0]!;
  expect(lanes[0]!.rows.map((row) => row.map((span) => [span.name, span.start, span.stage, span.kind]))).toEqual([
    [[`dynamo · ${name} [${data.compilations[0]!.id}]`, 0, "dynamo", "dynamo"]],
    [["aot_trace_joint_graph", 10, "joint", "aot"]],
    [["a pass", 12, "joint", "aot"]],
  ]);
});

test("spans that overlap are on two rows, and a parent that is not before its child is none", () => {
  const { lanes } = lanesOf(
    rows([
      ["x", 0, 50, 1, -1, 0],
      ["y", 40, 50, 9, -1, 0],
      ["open", 60, -1, -1, -1, 0],
    ]),
    index(),
  );
  expect(lanes[0]!.rows.map((row) => row.map(({ name, end, finished }) => [name, end, finished]))).toEqual([
    [
      ["x", 50, true],
      ["open", 90, false],
    ],
    [["y", 90, true]],
  ]);
});

test("a long time without spans is folded, and each place has its time", () => {
  const hour = 3.6e9;
  const lanes = lanesOf(
    rows([
      ["x", 0, 1e6, -1, -1, 0],
      ["y", hour, 1e6, -1, -1, 1],
    ]),
    index(),
  );
  expect(lanes.gaps).toEqual([{ start: 1e6, end: hour }]);
  const scale = new Scale(lanes);
  expect(scale.length).toBeCloseTo(2.14e6, 0);
  for (const us of [0, 5e5, 1e6, 2e9, hour, hour + 1e6]) expect(scale.unfold(scale.fold(us))).toBeCloseTo(us, 0);
  expect(scale.fold(hour + 1e6) - scale.fold(hour)).toBeCloseTo(1e6, 0);
});

test("a zoom keeps the place under the pointer, and stays within the timeline", () => {
  const scale = new Scale(lanesOf(rows([["x", 0, 1e6, -1, -1, 0]]), index()));
  expect(zoomed({ from: 0, to: 100 }, 2, 50)).toEqual({ from: 25, to: 75 });
  expect(scale.bounded({ from: -1e9, to: 1e9 })).toEqual(scale.whole());
  const { from, to } = scale.bounded({ from: 5, to: 5 });
  expect(to - from).toBe(2);
});

test("ticks are round, and times have units", () => {
  expect(ticks(-3, 97, 5)).toEqual([0, 20, 40, 60, 80]);
  expect([0, 12, 1500, 2.5e6, 125e6, 4.32e9].map((us) => time(us))).toEqual([
    "0",
    "12.00 µs",
    "1.500 ms",
    "2.500 s",
    "2 min 5.0 s",
    "1 h 12 min",
  ]);
  expect(time(200_000, 50_000)).toBe("200 ms");
});
