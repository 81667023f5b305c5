// The parts of the graph view that need no page: search, hit testing, level of detail, colours, the outline's rows,
// what became of a node.

import { readFileSync } from "node:fs";

import { beforeAll, describe, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { firstOpen, type Hierarchy, hierarchy } from "../src/layout/hierarchy";
import { layered } from "../src/layout/layered";
import { picture } from "../src/layout/picture";
import { type Graph } from "../src/graph";
import { Recording } from "../src/model";
import { madeBytes, outputBytes } from "../src/sizes";
import { State } from "../src/state";
import { zoomed } from "../src/views/graph/camera";
import { colouring, fateGraphs, fates, kindOf } from "../src/views/graph/colouring";
import { defUse } from "../src/views/graph/defuse";
import { emphasis } from "../src/views/graph/emphasis";
import { Grid } from "../src/views/graph/grid";
import { became } from "../src/views/graph/identity";
import { listingOf } from "../src/views/listings";
import { label, rowTexts } from "../src/views/graph/labels";
import { closedLane, rowsOf } from "../src/views/graph/outline";
import { type Drawn, levelOf, NOTHING, paint } from "../src/views/graph/paint";
import type { Palette } from "../src/views/graph/palette";
import { join, lanesOf, type Scene } from "../src/views/graph/scene";
import { parseQuery, SearchIndex } from "../src/search/nodes";
import { graphOf, network, node } from "./made";

let state: State;
let joint: Graph;
let tree: Hierarchy;
beforeAll(async () => {
  const file = new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url)));
  state = new State(Recording.whole(await decodeRecording(file)));
  joint = state.graph!;
  tree = hierarchy(joint, new Set(["x"]));
});
const named = (name: string, graph = joint): number => graph.nodes.findIndex((other) => other.name === name);
const names = (nodes: Iterable<number>, graph = joint): string[] => [...nodes].map((index) => graph.nodes[index]!.name);

function sceneOf(graph: Graph, groups: Hierarchy, open: Set<string>, flat = false): Scene {
  const seen = picture(graph, groups, open, flat);
  const sizes = seen.boxes.map(() => ({ width: 80, height: 40 }));
  const lanes = lanesOf(seen, sizes);
  return join(
    seen,
    sizes,
    lanes,
    lanes.map(({ input }) => layered(input)),
  );
}

test("a node has one name in the drawing, the outline and the code", () => {
  const { boxes } = picture(joint, tree, new Set(), true);
  const rows = rowsOf(tree, new Set(tree.roots.forward.groups.map(({ id }) => id)));
  const { lines, lineOf } = listingOf(state, joint);
  const called = boxes.filter((box) => !box.group && joint.nodes[box.node]!.op === "f");
  expect(called.length).toBeGreaterThan(20);
  for (const box of called) {
    const { name } = joint.nodes[box.node]!;
    expect(label(state, joint, box).title).toBe(name.length > 30 ? `${name.slice(0, 29)}…` : name);
    expect(lines[lineOf.get(box.node)!]).toMatch(new RegExp(`^ *${name}[: ]`));
  }
  const text = rowTexts(state, joint);
  for (const row of rows.filter(({ group, node: index }) => !group && joint.nodes[index]!.op === "f"))
    expect(text(row).label).toBe(joint.nodes[row.node]!.name);
});

describe("search", () => {
  test("terms are parted by spaces, but not inside of quotes and brackets", () => {
    expect(parseQuery('op:MM "a b" shape:[8, 64] gelu')).toEqual([
      { field: "op", text: "mm" },
      { field: "any", text: "a b" },
      { field: "shape", text: "[8,64]" },
      { field: "any", text: "gelu" },
    ]);
    expect(parseQuery("8x64 colon:kept")).toEqual([
      { field: "any", text: "[8,64" },
      { field: "any", text: "colon:kept" },
    ]);
    expect(parseQuery("  ")).toEqual([]);
  });
  const find = (query: string): string[] => names(new SearchIndex(state, joint).find(query));
  test("by name, operator, shape, dtype, source line and module, and all terms must fit", () => {
    expect(find("gelu_backward")).toEqual(["gelu_backward_2", "gelu_backward_1", "gelu_backward"]);
    expect(find("op:addmm")).toEqual(["addmm", "addmm_1", "addmm_2"]);
    expect(find("shape:[64, 8]")).toEqual(["t_g_2", "t_g_1", "t_g"]);
    expect(find("64x8")).toEqual(["t_g_2", "t_g_1", "t_g"]);
    expect(find("dtype:f32 op:slice")).toEqual(["slice_1"]);
    expect(find("line:model.py:13 -> module:blocks.1")).toEqual([]);
    expect(find("line:model.py:13 module:blocks.1")).toEqual(["gelu_1", "gelu_backward_1"]);
    expect(find("blocks.1 act gelu_1")).toEqual(["gelu_1"]);
    expect(find("f64")).toEqual([]);
    const index = new SearchIndex(state, joint);
    expect(joint.nodes[index.named("name:gelu_backward", index.find("name:gelu_backward"))]!.name).toBe(
      "gelu_backward",
    ); // not the first, gelu_backward_2
    expect(index.named("gelu_b", index.find("gelu_b"))).toBe(-1);
  });
});

describe("hit testing", () => {
  test("a point in a box finds the box, in a title its group, near an edge the edge, elsewhere nothing", () => {
    const scene = sceneOf(joint, tree, firstOpen(tree));
    const grid = new Grid(scene);
    scene.places.forEach(({ x, y, width, height }, box) =>
      expect(grid.hit(x + width / 2, y + height / 2, 1, () => true)).toEqual({ kind: "box", box }),
    );
    const { x, y } = scene.clusters[0]!;
    expect(grid.hit(x + 4, y + 4, 1, () => true)).toEqual({ kind: "title", cluster: 0 });
    const line = scene.routes.findIndex(({ kind }) => kind === "inside");
    const [x1, y1, x2, y2] = scene.routes[line]!.points as unknown as [number, number, number, number];
    expect(grid.hit((x1 + x2) / 2 + 2, (y1 + y2) / 2, 1, () => true)).toEqual({ kind: "edge", route: line });
    expect(grid.hit((x1 + x2) / 2 + 2, (y1 + y2) / 2, 1, () => false)).toBeNull();
    expect(grid.hit(-500, -500, 1, () => true)).toBeNull();
  });
  test("the grid finds in a rectangle what going through everything finds", () => {
    const deep = network(3000);
    const groups = hierarchy(deep, new Set());
    const scene = sceneOf(deep, groups, new Set(), true);
    const grid = new Grid(scene);
    for (let i = 0; i < 40; i++) {
      const left = (i * 97) % scene.width;
      const top = (i * 7919) % scene.height;
      const [right, bottom] = [left + 400, top + 900];
      const found = grid.within(left, top, right, bottom);
      const boxes = scene.places.flatMap((p, box) =>
        p.x - 10 <= right && p.x + p.width + 10 >= left && p.y <= bottom && p.y + p.height >= top ? [box] : [],
      );
      const routes = scene.routes.flatMap((r, at) =>
        r.left <= right && r.right >= left && r.top <= bottom && r.bottom >= top ? [at] : [],
      );
      expect([...found.boxes].sort((a, b) => a - b)).toEqual(boxes);
      expect(found.routes).toEqual(routes);
    }
  });
});

/** A canvas that only counts what is drawn on it. */
function counting(): { ctx: CanvasRenderingContext2D; calls: Map<string, number> } {
  const calls = new Map<string, number>();
  const ctx = new Proxy(
    {},
    {
      get: (_, name) => () => calls.set(String(name), (calls.get(String(name)) ?? 0) + 1),
      set: () => true,
    },
  ) as CanvasRenderingContext2D;
  return { ctx, calls };
}

describe("level of detail", () => {
  const palette = {
    colour: {},
    category: [],
    categoryFill: [],
    ramp: [],
    mono: "mono",
    sans: "sans",
  } as unknown as Palette;
  const drawnOf = (graph: Graph, groups: Hierarchy, open: Set<string>, flat: boolean): Drawn => {
    const scene = sceneOf(graph, groups, open, flat);
    const { boxes } = scene.picture;
    return {
      scene,
      grid: new Grid(scene),
      labels: boxes.map((box) => label(state, graph, box)),
      colouring: colouring(state, graph, boxes, "direction"),
      aliases: true,
      emphasis: NOTHING,
      found: new Set(),
      touching: () => [],
    };
  };
  const painted = (
    drawn: Drawn,
    scale: number,
    area = { left: 0, top: 0, right: drawn.scene.width, bottom: drawn.scene.height },
  ): { calls: Map<string, number>; pauses: number } => {
    const { ctx, calls } = counting();
    const pauses = [...paint(ctx, drawn, palette, area, scale)].length;
    return { calls, pauses };
  };
  test("text is written only where it can be read, and far boxes are plain rectangles", () => {
    const drawn = drawnOf(joint, tree, firstOpen(tree), false);
    expect([levelOf(1), levelOf(0.3), levelOf(0.1)]).toEqual(["near", "middle", "far"]);
    const [near, far] = [painted(drawn, 1).calls, painted(drawn, 0.1).calls];
    expect(near.get("fillText")).toBeGreaterThan(2 * drawn.scene.places.length);
    expect(near.get("fillRect") ?? 0).toBe(0);
    expect(far.get("fillText") ?? 0).toBeLessThan(4);
    expect(far.get("fillRect")).toBe(drawn.scene.places.length);
  });
  test("painting a large drawing pauses often, and a part of it touches only what is there", () => {
    const deep = network(6000);
    const drawn = drawnOf(deep, hierarchy(deep, new Set()), new Set(), true);
    const whole = painted(drawn, 0.1);
    expect(whole.pauses).toBeGreaterThan(20);
    expect(whole.calls.get("fillRect")).toBe(drawn.scene.places.length);
    const part = painted(drawn, 0.1, { left: 0, top: 0, right: drawn.scene.width, bottom: 800 });
    expect(part.calls.get("fillRect")).toBeLessThan(60);
  });
});

describe("what is highlighted", () => {
  test("one step, or the whole chain", () => {
    const one = defUse(joint, named("gelu_1"), false);
    expect(names(one.inputs)).toEqual(["addmm_1"]);
    expect(names(one.users)).toEqual(["add_1"]);
    const all = defUse(joint, named("gelu_1"), true);
    expect(names(all.inputs)).toEqual(expect.arrayContaining(["primals_7", "addmm", "gelu", "primals_3"]));
    expect(names(all.users)).toEqual(expect.arrayContaining(["slice_1", "gelu_2", "output"]));
    expect(defUse(joint, 999_999, true).inputs.size).toBe(0);
  });
  test("as edges of the drawing, told apart", () => {
    const scene = sceneOf(joint, tree, new Set(tree.groups.keys()));
    const seen = emphasis(joint, scene, named("gelu_1"), false);
    const ends = [...seen.routes].map(
      ([route, role]) =>
        `${role} ${[scene.routes[route]!.from, scene.routes[route]!.to].map((box) => names([scene.picture.boxes[box]!.node])[0]).join(" ")}`,
    );
    expect(ends.sort()).toEqual(["inputs addmm_1 gelu_1", "users gelu_1 add_1"]);
  });
});

describe("colours", () => {
  test("operators have kinds", () => {
    const kind = (target: string): string => kindOf(node(0, { target }));
    expect(kind("aten.addmm.default")).toContain("matrix product");
    expect(kind("aten.convolution_backward.default")).toContain("matrix product");
    expect(kind("aten.view.default")).toBe("view");
    expect(kind("aten.viewas.default")).toBe("pointwise and other");
    expect(kind("aten._softmax.default")).toContain("softmax");
    expect(kind("aten.sum.dim_IntList")).toBe("reduction");
    expect(kind("aten.gelu.default")).toBe("pointwise and other");
    expect(kindOf(node(0, { op: "p" }))).toBe("input");
  });
  test("bytes are shape times dtype, and unknown where a size is a symbol", () => {
    expect(outputBytes(state, joint.nodes[named("addmm")]!.value)).toBe(8 * 64 * 4);
    expect(outputBytes(state, { ...joint.nodes[named("addmm")]!.value!, shape: ["s0", 64] })).toBeNull();
    expect(outputBytes(state, null)).toBeNull();
  });
  test("what a graph's nodes make is what the rail says of it; a tuple that holds itself ends", () => {
    expect(madeBytes(state, joint).reduce<number>((sum, size) => sum + size!, 0)).toBe(
      state.recording.graphBytes(state.compilation, state.stage!.graphs.get("joint")!),
    );
    const [first] = state.compilation.values;
    const itself = { ...first!, kind: "tuple", parts: [state.compilation.values.length], storage: -1 };
    state.compilation.values.push(itself);
    expect(madeBytes(state, { ...joint, nodes: [node(0, { value: itself })] })).toEqual([0]);
    state.compilation.values.pop();
  });
  test("a closed group shows its mixture, whose shares make a whole", () => {
    const { boxes } = picture(joint, tree, firstOpen(tree));
    const found = colouring(state, joint, boxes, "kind");
    expect(found.legend.reduce((sum, { count }) => sum + count, 0)).toBe(
      joint.nodes.filter((other) => kindOf(other)).length,
    );
    found.tints.forEach((tint, i) => {
      if (boxes[i]!.group) expect(tint!.shares.reduce((sum, [, share]) => sum + share, 0)).toBeCloseTo(1);
    });
  });
  test("storage colours only what shares memory; saved is what the partition saved", () => {
    const { boxes } = picture(joint, tree, new Set(tree.groups.keys()));
    const tint = (by: "storage" | "fate" | "bytes", name: string): number | undefined =>
      colouring(state, joint, boxes, by).tints[boxes.findIndex((box) => box.node === named(name))]?.colour;
    expect(tint("storage", "t")).toBe(tint("storage", "primals_1"));
    expect(tint("storage", "gelu")).toBeUndefined();
    expect(
      state.recording.load(fateGraphs(state).flatMap(({ stage, role }) => state.graphNeed(stage, role))),
    ).toBeNull(); // it is all there
    expect(fates(state).saved.size).toBe(9);
    expect(tint("fate", "primals_1")).toBeDefined();
    expect(tint("fate", "slice_1")).toBeUndefined();
    // A view, an input: they make nothing.
    expect([tint("bytes", "t"), tint("bytes", "primals_2")]).toEqual([undefined, undefined]);
    expect(tint("bytes", "gelu")).toBeDefined();
  });
});

describe("the outline", () => {
  test("has the rows that are open, with their place among their siblings", () => {
    const rows = rowsOf(tree, firstOpen(tree));
    expect(rows.slice(0, 3).map(({ group, level, open }) => [group!.label, level, open])).toEqual([
      ["forward", 1, true],
      ["Net", 2, true],
      ["blocks.0", 3, false],
    ]);
    for (const row of rows) expect(row.position >= 1 && row.position <= row.siblings).toBe(true);
    const all = rowsOf(tree, new Set(tree.groups.keys()));
    expect(new Set(all.filter((row) => row.node >= 0).map((row) => row.node)).size).toBe(joint.nodes.length);
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
  });
  test("a closed lane hides its rows", () => {
    const open = firstOpen(tree);
    open.add(closedLane(tree.roots.forward));
    expect(rowsOf(tree, open)[1]!.group).toBe(tree.roots.backward);
  });
});

describe("what became of a node in another stage", () => {
  test("the same value is found under another name", () => {
    state.openStage(8);
    const decomposed = state.graph!;
    expect(decomposed.nodes[became(joint.nodes[named("addmm_1")]!, decomposed).same]!.name).toBe("add_bias_1");
  });
  test("a value that is gone leaves the operations of its call, else of its source line, else nothing", () => {
    const there = graphOf([
      node(0, { sequence: 7 }),
      node(1, { stack: "a.py:1", sequence: 3 }),
      node(2, { sequence: 7, backward: true }),
    ]);
    const gone = node(9, { name: "gone", valueIndex: 5, sequence: 7 });
    expect(became(gone, there)).toEqual({ same: -1, kin: [0], by: "call" });
    expect(became({ ...gone, sequence: 8, stack: "a.py:1" }, there)).toEqual({ same: -1, kin: [1], by: "line" });
    expect(became({ ...gone, sequence: -1 }, there).by).toBe("nothing");
  });
});

test("zooming keeps the point under the pointer where it is", () => {
  const before = { x: 100, y: 50, scale: 0.5 };
  const after = zoomed(before, 1.7, 300, 200);
  expect(after.x + 300 / after.scale).toBeCloseTo(before.x + 300 / before.scale);
  expect(after.y + 200 / after.scale).toBeCloseTo(before.y + 200 / before.scale);
  expect(zoomed(before, 1e9, 0, 0).scale).toBeLessThanOrEqual(4);
});
