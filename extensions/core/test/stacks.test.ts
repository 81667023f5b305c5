import { readFileSync } from "node:fs";

import { beforeAll, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { type Rows, WholeSource } from "../src/source";
import { type Frame, framesOf, kept, treeOf } from "../src/views/records/stacks";
import type { RecordingData, RecordingIndex } from "../src/wire";

let data: RecordingData;
beforeAll(async () => {
  data = await decodeRecording(new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url))));
});

const TRAIN = '  File "train.py", line 9, in <module>\n    step(x)';
const STEP = '  File "train.py", line 4, in step\n    return f(x)';

/** Compilations with these stacks, and what came of them. */
function compiled(...all: readonly (readonly [string, number, boolean])[]): [Rows, RecordingIndex] {
  const index = new WholeSource(data).index();
  const compilations = all.map(([, attempts, failed], i) => ({
    ...index.compilations[0]!,
    id: `${i}/0`,
    attempts,
    error: failed ? { stage: "x", type: "E", message: "m", ran_in_eager: false, place: "" } : null,
  }));
  const { part } = new WholeSource(data).rows("stacks");
  const texts = all.map(([stack]) => stack);
  return [
    {
      part: { ...part, compilations: compilations.map(({ id }) => id), stacks: texts.map((_, i) => i), metrics: [] },
      text: (number) => texts[number] ?? "",
      plain: (number) => texts[number] ?? "",
    },
    { ...index, compilations },
  ];
}

function said(frames: readonly Frame[]): unknown[] {
  return frames.map(({ line, below, compiled: found }) => [
    line,
    found.map(({ head, outcomes }) => [head.id, ...outcomes].join(" ")),
    ...said(below),
  ]);
}

test("frames have their place and their code", () => {
  expect(framesOf(`${TRAIN}\n${STEP}`)).toEqual([
    { file: "train.py", line: 9, scope: "<module>", code: "step(x)" },
    { file: "train.py", line: 4, scope: "step", code: "return f(x)" },
  ]);
  expect(framesOf("no stack")).toEqual([]);
});

test("stacks with the same beginning are one branch, and each compilation says what came of it", () => {
  const tree = treeOf(...compiled([TRAIN, 1, false], [`${TRAIN}\n${STEP}`, 2, false], [STEP, 1, true]));
  expect(said(tree)).toEqual([
    [9, ["0/0 compiled"], [4, ["1/0 compiled restarted"]]],
    [4, ["2/0 failed"]],
  ]);
  expect(said(kept(tree, ({ outcomes }) => outcomes.includes("failed")))).toEqual([[4, ["2/0 failed"]]]);
  expect(said(kept(tree, (_, under) => under.includes("step(x)")))).toEqual([
    [9, ["0/0 compiled"], [4, ["1/0 compiled restarted"]]],
  ]);
});
