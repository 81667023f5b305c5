// The tour names only what the recording has, and points at the same thing in the view that it opens.

import { readFileSync } from "node:fs";

import { beforeEach, describe, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { Recording } from "../src/model";
import { State } from "../src/state";
import { besideOf } from "../src/tour";
import { stepsOf } from "../src/tour/steps";
import { viewsOf } from "../src/views/registry";
import { showLines } from "../src/views/wrapper/lines";
import type { CompilationData, InputRecord, RecordingData } from "../src/wire";

const DOORS = { viewsOf, showLines };
let data: RecordingData;
beforeEach(async () => {
  data = await decodeRecording(new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url))));
});

function tour(change: Partial<CompilationData> = {}, of = 0): { titles: string[]; state: State } {
  const state = new State(Recording.whole({ ...data, compilations: [{ ...data.compilations[of]!, ...change }] }));
  return { titles: stepsOf(state, DOORS).map(({ title }) => title), state };
}

function input(name: string, change: Partial<InputRecord> = {}): InputRecord {
  return { ...data.compilations[0]!.inputs[0]!, name, mutates_data: false, storage: -1, synthetic_base: "", ...change };
}

describe("the steps", () => {
  test("are eight, for a training and for an inference program", () => {
    expect(tour().titles).toHaveLength(8);
    expect(tour({}, 1).titles).toHaveLength(8);
  });

  test("are fewer where a program failed early, and one of them is the failure", () => {
    const { titles } = tour({}, 2);
    expect(titles).toContain("This failed");
    expect(titles.length).toBeLessThanOrEqual(8);
    expect(titles).not.toContain("Forward and backward are cut apart");
  });

  test("begin with the stages and end with the help", () => {
    const { titles } = tour();
    expect([titles[0], titles.at(-1)]).toEqual(["The stages", "What is this?"]);
  });

  test("open only views that the compilation has", () => {
    for (const of of [0, 1, 2]) {
      const { state } = tour({}, of);
      for (const step of stepsOf(state, DOORS)) {
        step.show(state);
        expect(viewsOf(state).map(({ id }) => id)).toContain(state.selection.view);
        expect(state.stage).toBeDefined();
      }
    }
  });

  test("stop at no stage that changed nothing", () => {
    const stages = data.compilations[0]!.stages.map((stage, i) => ({ ...stage, changed: i % 2 === 0 }));
    const { state } = tour({ stages });
    for (const step of stepsOf(state, DOORS).filter(({ title }) => /drawing|decision|changed|one node/.test(title))) {
      step.show(state);
      expect(state.stage!.changed, step.title).toBe(true);
    }
  });

  test("name a written input, and the line that copies its new value back", () => {
    const wrapper = {
      filename: "w",
      source: "def call(args):\n    x, = args\n    out = graph(x)\n    x.copy_(out)\n",
      notes: [
        { first: 2, last: 2, fact: "one variable per flat input", subject: "x" },
        { first: 4, last: 4, fact: "x is written", subject: "x" },
      ],
    };
    const { titles } = tour({ inputs: [input("x", { mutates_data: true })], wrapper });
    expect(titles).toContain("Your function writes `x`");
    expect(titles).toContain("Here `x` gets its new value");
  });

  test("claim no line that copies back if the graph itself writes the input", () => {
    const wrapper = { filename: "w", source: "def call(args):\n    return graph(args)\n", notes: [] };
    const { titles } = tour({ inputs: [input("x", { mutates_data: true })], wrapper });
    expect(titles).toContain("Your function writes `x`");
    expect(titles.filter((title) => title.startsWith("Here"))).toEqual([]);
  });

  test("name inputs that share memory, and no others", () => {
    expect(tour({ inputs: [input("a", { storage: 0 }), input("b", { storage: 0 })] }).titles).toContain(
      "`a` and `b` share memory",
    );
    const apart = tour({ inputs: [input("a", { storage: 0 }), input("b", { storage: 1 })] }).titles;
    expect(apart.filter((title) => title.includes("share memory"))).toEqual([]);
  });

  test("say nothing of writes, sharing or saved values where there are none", () => {
    const { titles } = tour({ inputs: [input("x")], saved_tensors: [], recomputed: [], outputs: [] });
    expect(titles.filter((title) => /writes|share|saved|again|view$/.test(title))).toEqual([]);
    expect(titles).toHaveLength(8);
  });
});

describe("the card", () => {
  test("is below what it explains, or where there is room", () => {
    expect(besideOf({ left: 100, top: 100, right: 200, bottom: 120 }, 300, 100, 1000, 600)).toEqual({ x: 100, y: 130 });
    expect(besideOf({ left: 100, top: 500, right: 200, bottom: 590 }, 300, 100, 1000, 600)).toEqual({ x: 100, y: 390 });
    expect(besideOf({ left: 0, top: 20, right: 200, bottom: 590 }, 300, 100, 1000, 600)!.x).toBe(210);
  });

  test("is inside the workbench, and has no place over what it explains", () => {
    expect(besideOf(null, 360, 160, 500, 640)).toEqual({ x: 130, y: 470 });
    expect(besideOf({ left: 2, top: 2, right: 498, bottom: 638 }, 360, 160, 500, 640)).toBeNull();
  });
});
