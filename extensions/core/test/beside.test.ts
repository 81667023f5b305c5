// Drawings beside each other: which nodes are the same, which modules and which part of the drawing are shown, and what
// a bookmark keeps.

import { readFileSync } from "node:fs";

import { beforeAll, beforeEach, describe, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import type { Graph } from "../src/graph";
import { firstOpen, type Hierarchy, hierarchy } from "../src/layout/hierarchy";
import { layered } from "../src/layout/layered";
import { picture } from "../src/layout/picture";
import { Recording } from "../src/model";
import { State } from "../src/state";
import { Grid } from "../src/views/graph/grid";
import { becameIn, counterparts, type Seen } from "../src/views/graph/identity";
import { inStep, type Leading, openLike } from "../src/views/graph/in_step";
import { join, lanesOf, type Scene } from "../src/views/graph/scene";
import type { RecordingData } from "../src/wire";
import { graphOf, network, node } from "./made";

let data: RecordingData;
let state: State;
beforeAll(async () => {
  data = await decodeRecording(new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url))));
});
beforeEach(() => (state = new State(Recording.whole(data))));

function graphAt(name: string, role: string): Graph {
  const stage = state.compilation.stages.findIndex((one) => one.name === name);
  state.recording.load(state.graphNeed(stage, role)); // a whole recording has it at once
  return state.recording.graph(state.compilation, state.compilation.stages[stage]!, role)!;
}

function seen(graph: Graph, name: string, compilation = "0"): Seen {
  return { compilation, graph, node: graph.nodes.find((one) => one.name === name)! };
}

const names = (graph: Graph, nodes: readonly number[]): string[] => nodes.map((index) => graph.nodes[index]!.name);

describe("a node in the drawing beside", () => {
  test("became several: the one with its value, and the new ones of its call", () => {
    const before = graphOf([
      node(0, { name: "addmm", target: "addmm", valueIndex: 1, sequence: 7, stack: "a.py:1" }),
      node(1, { name: "relu", valueIndex: 2, sequence: 8, stack: "a.py:1" }),
      node(2, { name: "t", target: "t", valueIndex: 5, sequence: 7, stack: "a.py:1" }),
    ]);
    const after = graphOf([
      node(0, { name: "mm", valueIndex: 9, sequence: 7, stack: "a.py:1" }),
      node(1, { name: "add", target: "add", valueIndex: 1, sequence: 7, stack: "a.py:1" }),
      node(2, { name: "relu", valueIndex: 2, sequence: 8, stack: "a.py:1" }),
      node(3, { name: "other line", valueIndex: 10, sequence: 7, stack: "a.py:2" }),
      node(4, { name: "t", target: "t", valueIndex: 5, sequence: 7, stack: "a.py:1" }),
    ]);
    const all = (from: Graph, name: string, to: Graph): string[] =>
      names(to, counterparts(state.recording, seen(from, name), "0", to));
    expect(all(before, "addmm", after)).toEqual(["add", "mm"]);
    expect(all(before, "relu", after)).toEqual(["relu"]);
    expect(all(before, "t", after)).toEqual(["t"]);
    expect(all(after, "mm", before)).toEqual(["addmm"]);
    expect(all(before, "addmm", before)).toEqual(["addmm"]);
  });

  test("is found by its value in the stages of a recording, under any name", () => {
    const [trace, decomposed] = [graphAt("trace", "joint"), graphAt("decompose", "joint")];
    expect(names(decomposed, counterparts(state.recording, seen(trace, "addmm_1"), "0", decomposed))[0]).toBe(
      "add_bias_1",
    );
  });

  test("of Dynamo's graph is the one of the same name and line, though its target is another", () => {
    const captured = graphOf([node(0, { name: "mul_2", target: "mul", stack: "a.py:1" })]);
    const traced = graphOf([
      node(0, { name: "mul_1", target: "aten.mul.Tensor", stack: "a.py:1" }),
      node(1, { name: "mul_2", target: "aten.mul.Tensor", stack: "a.py:1" }),
    ]);
    expect(counterparts(state.recording, seen(captured, "mul_2"), "0", traced)).toEqual([1]);
    const elsewhere = graphOf([node(0, { name: "mul_2", target: "aten.mul.Tensor", stack: "a.py:2" })]);
    expect(becameIn(state.recording, seen(captured, "mul_2"), "0", elsewhere).by).toBe("nothing");
  });

  test("of another compilation is matched by operator, never by value, and else by its line", () => {
    const here = graphOf([
      node(0, { name: "sin", target: "sin", valueIndex: 3 }),
      node(1, { name: "gone", target: "cos", valueIndex: 4, stack: "a.py:2" }),
    ]);
    const there = graphOf([
      node(0, { name: "new", target: "exp", valueIndex: 3, stack: "a.py:2" }),
      node(1, { name: "sin_1", target: "sin", valueIndex: 8 }),
    ]);
    expect(counterparts(state.recording, seen(here, "sin"), "1", there)).toEqual([1]);
    expect(becameIn(state.recording, seen(here, "gone"), "1", there)).toEqual({ same: -1, kin: [0], by: "line" });
  });
});

test("modules are opened and closed as beside, except those that only one graph has", () => {
  const [forward, whole] = [hierarchy(graphAt("partition", "forward"), new Set()), hierarchy(state.graph!, new Set())];
  const leading = (tree: Hierarchy, open: Set<string>): Leading => ({ hierarchy: tree, open }) as unknown as Leading;
  const shared = [...forward.groups.keys()].filter((id) => whole.groups.has(id) && id !== "forward:");
  const own = [...whole.groups.keys()].find((id) => id.startsWith("backward:/"))!;
  expect(shared.length).toBeGreaterThan(2);
  const open = new Set([own]);
  expect(openLike(leading(forward, new Set(shared)), leading(whole, open))).toBe(true);
  expect(open).toEqual(new Set([own, ...shared]));
  expect(openLike(leading(forward, new Set(shared)), leading(whole, open))).toBe(false);
  openLike(leading(forward, new Set()), leading(whole, open));
  expect(open).toEqual(new Set([own]));
});

describe("the camera beside", () => {
  const drawn = (graph: Graph, size: number): { scene: Scene; grid: Grid } => {
    const tree = hierarchy(graph, new Set());
    const seenBoxes = picture(graph, tree, firstOpen(tree));
    const sizes = seenBoxes.boxes.map(() => ({ width: size, height: 40 }));
    const lanes = lanesOf(seenBoxes, sizes);
    const layouts = lanes.map(({ input }) => layered(input));
    const scene = join(seenBoxes, sizes, lanes, layouts);
    return { scene, grid: new Grid(scene) };
  };
  const graph = network(400);
  const [here, there] = [drawn(graph, 80), drawn(graph, 200)];
  const same = new Map(graph.nodes.map(({ index }) => [index, index]));
  const size = { width: 300, height: 200, scale: 1 };
  const middleOf = ({ x, y, width, height }: { x: number; y: number; width: number; height: number }) => ({
    x: x + width / 2,
    y: y + height / 2,
  });
  const at = (middle: { x: number; y: number }) => ({ ...size, x: middle.x - 150, y: middle.y - 100 });

  test("shows the boxes that the reader sees, at every box of the drawing", () => {
    for (const [i, place] of here.scene.places.entries()) {
      const camera = inStep(at(middleOf(place)), here, at({ x: 0, y: 0 }), there.scene, same, 1);
      const target = there.scene.places[i]!;
      expect(camera.x + 300).toBeGreaterThan(target.x);
      expect(camera.x).toBeLessThan(target.x + target.width);
      expect(camera.y + 200).toBeGreaterThan(target.y);
      expect(camera.y).toBeLessThan(target.y + target.height);
    }
  });

  test("moves smoothly", () => {
    const { x, y } = middleOf(here.scene.places[3]!);
    const steps = Array.from({ length: 200 }, (_, i) =>
      inStep(at({ x, y: y + i }), here, at({ x: 0, y: 0 }), there.scene, same, 1),
    );
    const jumps = steps.slice(1).map((step, i) => Math.hypot(step.x - steps[i]!.x, step.y - steps[i]!.y));
    expect(Math.max(...jumps)).toBeLessThan(25);
  });

  test("keeps its own scale, which is multiplied", () => {
    const to = { ...at({ x: 0, y: 0 }), scale: 0.5 };
    expect(inStep(at({ x: 0, y: 0 }), here, to, there.scene, same, 1.2).scale).toBeCloseTo(0.6);
  });

  test("stays where it is while nothing that both have is in view", () => {
    const to = at({ x: 40, y: 50 });
    const camera = inStep(at({ x: -5000, y: -5000 }), here, to, there.scene, same, 1);
    expect(camera).toEqual({ x: to.x, y: to.y, scale: 1 });
  });
});

describe("what is beside", () => {
  const beside = [{ stage: "partition", role: "forward" }, { compilation: "1" }];

  test("is in the bookmark, by names", () => {
    state.drawBeside(beside);
    const again = new State(Recording.whole(data), state.bookmark);
    expect(again.selection.beside).toEqual(beside);
    again.openStage(2);
    expect(again.selection.beside).toBe(again.selection.beside);
    again.drawBeside([]);
    expect(again.bookmark.beside).toBeUndefined();
  });

  test("is at most two graphs", () => {
    state.drawBeside([...beside, { stage: "joint" }]);
    expect(state.selection.beside).toEqual(beside);
  });

  test.each(["", "{", "7", "null", "[null, 7, {}]", '[{"stage": 7, "__proto__": {}}]', '{"stage": "joint"}'])(
    "is nothing if a bookmark says %s",
    (text) => expect(new State(Recording.whole(data), { beside: text }).selection.beside).toEqual([]),
  );

  test("is not a compilation that the recording does not have", () => {
    state.drawBeside([{ compilation: "none such" }, { stage: "joint" }]);
    expect(state.selection.beside).toEqual([{ stage: "joint" }]);
  });
});
