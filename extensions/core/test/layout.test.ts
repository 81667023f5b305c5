import { readFileSync } from "node:fs";

import { type Format, Graphviz } from "@hpcc-js/wasm-graphviz";
import { beforeAll, describe, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { fromDot, toDot } from "../src/layout/dot";
import { boxOf, firstOpen, type Hierarchy, hierarchy, openTo, picture } from "../src/layout/hierarchy";
import { layered } from "../src/layout/layered";
import type { LaneInput, LaneLayout } from "../src/layout/placed";
import { type Graph, Recording } from "../src/model";
import { State } from "../src/state";
import { join, lanesOf } from "../src/views/graph/lanes";

let state: State;
let joint: Graph;
let tree: Hierarchy;
beforeAll(async () => {
  const file = new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url)));
  state = new State(Recording.whole(await decodeRecording(file)));
  joint = state.graph!;
  tree = hierarchy(joint, new Set(["x"]));
});

describe("the hierarchy", () => {
  test("opens what stands alone and shows the blocks of both lanes", () => {
    const seen = picture(joint, tree, firstOpen(tree));
    const modules = seen.boxes.filter(({ group }) => group).map(({ lane, group }) => `${lane} ${group!.label}`);
    expect(modules).toEqual([
      "forward blocks.0", "forward blocks.1", "forward blocks.2", "backward blocks.2", "backward blocks.1", "backward blocks.0",
    ]);
    expect(seen.open.map(({ label }) => label)).toEqual(["Net", "Net"]);
  });
  test("puts parameters into the module that uses them, and the user's input outside", () => {
    const node = (name: string): number => joint.nodes.findIndex((other) => other.name === name);
    expect(tree.home[node("primals_1")]!.forward!.path).toBe("blocks.0.fc<img src=x onerror=alert(1)>");
    expect(tree.home[node("primals_7")]!.forward).toBe(tree.roots.forward);
    expect(tree.home[node("tangents_1")]!.backward).toBe(tree.roots.backward);
  });
  test("every node is in exactly one box, and every edge joins boxes that are drawn", () => {
    for (const open of [new Set<string>(), firstOpen(tree), new Set(tree.groups.keys())]) {
      const seen = picture(joint, tree, open);
      const ids = new Set(seen.boxes.map(({ id }) => id));
      expect(ids.size).toBe(seen.boxes.length);
      for (const node of joint.nodes) expect(ids).toContain(boxOf(tree, open, node.index));
      for (const edge of seen.edges) expect(ids.has(edge.from) && ids.has(edge.to)).toBe(true);
    }
    const all = picture(joint, tree, new Set(tree.groups.keys()));
    expect(all.boxes.length).toBe(joint.nodes.length + 1); // outputs and gradients are two
  });
  test("opening to a node brings it to light", () => {
    const node = joint.nodes.findIndex(({ name }) => name === "addmm_1");
    const open = firstOpen(tree);
    expect(boxOf(tree, open, node)).toContain("blocks.1");
    openTo(tree, node, open);
    expect(boxOf(tree, open, node)).toBe(`forward#${node}`);
  });
  test("what the forward saves is a mark, not an edge to the output", () => {
    state.openStage(9, "forward");
    const forward = state.graph!;
    const seen = picture(forward, hierarchy(forward, new Set(["x"])), new Set());
    const marks = seen.boxes.map(({ saved }) => saved);
    expect(marks.reduce((sum, count) => sum + count, 0)).toBe(9);
    expect(seen.edges.filter(({ to }) => to === `forward#${forward.nodes.length - 1}`)).toHaveLength(1);
  });
});

/** Boxes don't overlap, and every edge has a path. */
function expectReadable(lane: LaneInput, layout: LaneLayout): void {
  expect(layout.boxes.size).toBe(lane.boxes.length);
  const places = [...layout.boxes.values()];
  places.forEach((a, i) => places.slice(i + 1).forEach((b) => {
    const apart = a.x + a.width <= b.x + 1 || b.x + b.width <= a.x + 1 || a.y + a.height <= b.y + 1 || b.y + b.height <= a.y + 1;
    expect(apart).toBe(true);
  }));
  for (const edge of layout.edges) expect(edge.path).toMatch(/^M[-\d.,]+[CL][-\d., ]+$/);
}

describe("layouts", () => {
  const size = { width: 80, height: 30 };
  const lanes = (open: Set<string>): { lane: "forward" | "backward"; input: LaneInput }[] => {
    const seen = picture(joint, tree, open);
    return lanesOf(seen, new Map(seen.boxes.map(({ id }) => [id, size])));
  };
  test("graphviz places every box of both lanes, the backward upward", async () => {
    const graphviz = await Graphviz.load();
    const all = new Set(tree.groups.keys());
    const both = lanes(all);
    const layouts = both.map(({ input }) => fromDot(input, graphviz.layout(toDot(input), "json0" as Format, "dot")));
    both.forEach(({ input }, i) => expectReadable(input, layouts[i]!));
    const y = (name: string): number => layouts[1]!.boxes.get(`backward#${joint.nodes.findIndex((node) => node.name === name)}`)!.y;
    expect(y("gelu_backward_2")).toBeGreaterThan(y("gelu_backward"));
    const drawing = join(picture(joint, tree, all), both, layouts);
    expect(drawing.routes.some(({ kind }) => kind === "across")).toBe(true);
    expect([...drawing.clusters.keys()]).toHaveLength(picture(joint, tree, all).open.length);
  });
  test("no name from the recording enters the DOT text", () => {
    for (const { input } of lanes(new Set(tree.groups.keys()))) expect(toDot(input)).not.toMatch(/img|blocks|primals/);
  });
  test("the plain layout needs nothing and overlaps nothing", () => {
    for (const { input } of lanes(firstOpen(tree))) expectReadable(input, layered(input));
  });
  test("the plain layout survives a cycle, which closed modules can make", () => {
    const boxes = ["a", "b", "c"].map((id) => ({ id, size, cluster: "" }));
    const edges = [["a", "b"], ["b", "c"], ["c", "a"]].map(([from, to]) => ({ from: from!, to: to! }));
    expect(layered({ upward: false, boxes, clusters: [], edges, rankGap: 26 }).boxes.size).toBe(3);
  });
  test("the plain layout takes 20,000 nodes in about a second", () => {
    const boxes = Array.from({ length: 20000 }, (_, i) => ({ id: String(i), size, cluster: "" }));
    const edges = boxes.slice(1).flatMap((_, i) => [{ from: String(i), to: String(i + 1) }, { from: String(Math.floor(i / 2)), to: String(i + 1) }]);
    const start = performance.now();
    layered({ upward: false, boxes, clusters: [], edges, rankGap: 26 });
    expect(performance.now() - start).toBeLessThan(3000);
  });
});
