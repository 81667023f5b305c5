// The user's values as colours: which nodes they are of, in which steps, and what a reader finds in the table.

import { readFileSync } from "node:fs";

import { beforeEach, describe, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { Recording } from "../src/model";
import { State } from "../src/state";
import { INFINITE, NOT_A_NUMBER, scaleOf, shown, STEPS, together, valuesIn, ZERO } from "../src/views/graph/painting";
import { matches, rowsOf } from "../src/views/graph/values";
import type { Painting, RecordingData } from "../src/wire";
import { graphOf, node } from "./made";

const graph = graphOf([node(0, { name: "x", op: "p" }), node(1, { name: "mm" }), node(2, { name: "tanh" })]);

function painting(values: Record<string, number>, change: Partial<Painting> = {}): Painting {
  const names = Object.keys(values);
  return {
    compilation: "0",
    label: "time",
    unit: "µs",
    note: "",
    groups: "largest",
    names,
    stages: names.map(() => ""),
    graphs: names.map(() => ""),
    numbers: Object.values(values),
    texts: [],
    stage: "partition",
    graph: "forward",
    node: "",
    ...change,
  };
}

describe("which nodes", () => {
  test("a name without stage and graph is of every graph that has it, and no name is lost", () => {
    const { of, missing } = valuesIn(painting({ tanh: 3, mm: 1, gone: 9 }), graph, "trace");
    expect(of).toEqual([undefined, 1, 3]);
    expect(missing).toEqual([2]);
  });

  test("a name with a stage or a graph is of these alone", () => {
    const values = painting({ mm: 1, tanh: 3 }, { stages: ["partition", ""], graphs: ["", "backward"] });
    expect(valuesIn(values, graph, "trace").of).toEqual([undefined, undefined, undefined]);
    expect(valuesIn(values, graph, "partition").of).toEqual([undefined, 1, undefined]);
    expect(valuesIn(values, { ...graph, role: "backward" }, "trace").of).toEqual([undefined, undefined, 3]);
  });

  test("the table has the nodes of the graph first, and can be searched by words and numbers", () => {
    const infinite = rowsOf(painting({ x: -Infinity, tanh: Infinity, mm: NaN }), graph, "trace");
    expect(infinite.map(({ name }) => name)).toEqual(["mm", "tanh", "x"]);
    const rows = rowsOf(painting({ x: 0.5, gone: 9, tanh: 3, mm: NaN }), graph, "trace");
    expect(rows.map(({ name, node }) => [name, node])).toEqual([
      ["mm", 1],
      ["tanh", 2],
      ["x", 0],
      ["gone", -1],
    ]);
    const found = (query: string): string[] => rows.filter((row) => matches(row, query)).map(({ name }) => name);
    expect(found(">0.5")).toEqual(["tanh", "gone"]);
    expect(found(">=.5 <=3")).toEqual(["tanh", "x"]);
    expect(found("nan")).toEqual(["mm"]);
    expect(found("TAN")).toEqual(["tanh"]);
  });
});

describe("colours of numbers", () => {
  test("equal steps for numbers of like size, from the smallest to the largest", () => {
    const scale = scaleOf([10, 20, 60], "µs");
    expect([10, 20, 60].map((value) => scale.colour(value))).toEqual([0, 1, STEPS - 1]);
    expect(scale.said).toBe("");
    expect(scaleOf([0, 10, 60], "").colour(0)).toBe(ZERO);
    expect(scale.legend([10, 20, 60]).map(({ text, count }) => [text, count])).toEqual([
      ["10 to 20 µs", 1],
      ["20 to 30 µs", 1],
      ["50 to 60 µs", 1],
    ]);
  });

  test("steps of equal ratio for numbers that are far apart, and zero has its own colour", () => {
    const scale = scaleOf([0, 1e-5, 1], "");
    expect([0, 1e-5, 2e-3, 1].map((value) => scale.colour(value))).toEqual([ZERO, 0, 2, STEPS - 1]);
    expect(scale.said).not.toBe("");
  });

  test("negative numbers have the other colour, by their size", () => {
    const scale = scaleOf([-4, -0.1, 0, 4], "");
    expect([-4, -0.1, 0, 4].map((value) => scale.colour(value))).toEqual([2 * STEPS - 1, STEPS, ZERO, STEPS - 1]);
    expect(scale.legend([-4, 4]).map(({ text }) => text)).toEqual(["−4 to −3.2", "3.2 to 4"]);
  });

  test("NaN and infinity are shown as such and do not stretch the scale", () => {
    const values = [1, 2, NaN, Infinity, -Infinity];
    const scale = scaleOf(values, "ms");
    expect(values.map((value) => scale.colour(value))).toEqual([0, STEPS - 1, NOT_A_NUMBER, INFINITE, INFINITE]);
    expect(scale.legend(values).map(({ text }) => text)).toEqual(["1 to 1.2 ms", "1.8 to 2 ms", "∞, −∞", "NaN"]);
    expect(values.map((value) => shown(value, "ms"))).toEqual(["1 ms", "2 ms", "NaN", "∞", "−∞"]);
  });

  test("one number, or numbers that are all alike, are one step", () => {
    const scale = scaleOf([3, 3], "");
    expect(scale.legend([3, 3])).toEqual([{ colour: STEPS - 1, text: "3", count: 2 }]);
    expect(
      scaleOf([0, 0], "")
        .legend([0, 0])
        .map(({ text }) => text),
    ).toEqual(["0"]);
  });

  test("a closed module shows its largest node or the sum, and NaN if a node has it", () => {
    expect(together([1, -5, 2], "largest")).toBe(-5);
    expect(together([1, 5, 2], "sum")).toBe(8);
    expect(together([1, NaN], "largest")).toBeNaN();
    expect(together([], "sum")).toBeUndefined();
  });
});

describe("a painting is opened", () => {
  let data: RecordingData;
  beforeEach(async () => {
    data = await decodeRecording(new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url))));
  });
  const opened = (paintings: Painting[], bookmark = {}): State =>
    new State(Recording.whole({ ...data, paintings }), bookmark);

  test("the last one at first, where it was made for", () => {
    const state = opened([painting({ mm: 1 }, { label: "error" }), painting({ mm: 1 }, { graph: "backward" })]);
    expect([state.stage?.name, state.graph?.role, state.selection.view]).toEqual(["partition", "backward", "graph"]);
    expect(state.painting?.label).toBe("time");
    state.openPainting("error");
    expect(state.bookmark.painting).toBe("error");
    expect(opened([painting({ mm: 1 })], { view: "code" }).painting).toBeNull();
  });

  test("if it was added after the bookmark", () => {
    const bookmark = opened([]).bookmark;
    expect(opened([painting({ mm: 1 })], bookmark).painting?.label).toBe("time");
    const since = { ...opened([painting({ mm: 1 })]).bookmark, painting: "" };
    expect(opened([painting({ mm: 1 })], since).painting).toBeNull();
  });

  test("one that is taken away leaves the others", async () => {
    const state = opened([painting({ mm: 1 }, { label: "error" }), painting({ mm: 1 })]);
    await state.takeAway(state.painting!);
    expect(state.painting).toBeNull();
    expect(state.paintings.map(({ label }) => label)).toEqual(["error"]);
  });
});
