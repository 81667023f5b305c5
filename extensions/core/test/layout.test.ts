import { readFileSync } from "node:fs";
import process from "node:process";

import { type Format, Graphviz } from "@hpcc-js/wasm-graphviz";
import { beforeAll, describe, expect, test, vi } from "vitest";

import { inSteps } from "../src/chunked_work";
import { decodeRecording } from "../src/decode";
import { column } from "../src/layout/column";
import { fromDot, toDot } from "../src/layout/dot";
import { closeAll, firstOpen, grouping, type Hierarchy, hierarchy, members, openTo } from "../src/layout/hierarchy";
import { layered } from "../src/layout/layered";
import { marksOf } from "../src/layout/marks";
import { picture } from "../src/layout/picture";
import type { LaneInput, LaneLayout } from "../src/layout/placed";
import { type Graph, runsBackward } from "../src/graph";
import { Recording } from "../src/model";
import { State } from "../src/state";
import { join, lanesOf, type Scene, stretch } from "../src/views/graph/scene";
import { crossings } from "./crossings";
import { graphOf, made, network, node } from "./made";

let state: State;
let joint: Graph;
let tree: Hierarchy;
beforeAll(async () => {
  const file = new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url)));
  state = new State(Recording.whole(await decodeRecording(file)));
  joint = state.graph!;
  tree = hierarchy(joint, new Set(["x"]));
});
const everything = (of: Hierarchy): Set<string> => new Set(of.groups.keys());
const named = (name: string): number => joint.nodes.findIndex((node) => node.name === name);

describe("the hierarchy", () => {
  test("opens what stands alone and shows the blocks of both lanes", () => {
    const seen = picture(joint, tree, firstOpen(tree));
    const modules = seen.boxes.filter(({ group }) => group).map(({ lane, group }) => `${lane} ${group!.label}`);
    expect(modules).toEqual([
      "forward blocks.0",
      "forward blocks.1",
      "forward blocks.2",
      "backward blocks.2",
      "backward blocks.1",
      "backward blocks.0",
    ]);
    expect(seen.open.map(({ label }) => label)).toEqual(["Net", "Net"]);
  });
  test("puts parameters into the module that uses them, and the user's input outside", () => {
    expect(tree.home[named("primals_1")]!.forward!.path).toBe("blocks.0.fc<img src=x onerror=alert(1)>");
    expect(tree.home[named("primals_7")]!.forward).toBe(tree.roots.forward);
    expect(tree.home[named("tangents_1")]!.backward).toBe(tree.roots.backward);
  });
  test("every node is in exactly one box, and every edge joins two different boxes", () => {
    for (const open of [new Set<string>(), firstOpen(tree), everything(tree)]) {
      const seen = picture(joint, tree, open);
      expect(new Set(seen.boxes.map(({ id }) => id)).size).toBe(seen.boxes.length);
      for (const node of joint.nodes) expect(seen.boxes[seen.boxOf(node.index)]).toBeDefined();
      for (const { from, to } of seen.edges) expect(from !== to && seen.boxes[from] && seen.boxes[to]).toBeTruthy();
    }
    // Outputs and gradients are two.
    expect(picture(joint, tree, everything(tree)).boxes.length).toBe(joint.nodes.length + 1);
  });
  test("flat, every node is a box by itself and no group is drawn", () => {
    const seen = picture(joint, tree, new Set(), true);
    expect(seen.boxes.length).toBe(joint.nodes.length + 1);
    expect(seen.open).toEqual([]);
  });
  test("opening to a node brings it to light, and closing a group hides what was open in it", () => {
    const open = firstOpen(tree);
    const box = (): string => picture(joint, tree, open).boxes[picture(joint, tree, open).boxOf(named("addmm_1"))]!.id;
    expect(box()).toContain("blocks.1");
    const before = open.size;
    expect(openTo(tree, named("addmm_1"), open)).toBe(true);
    expect(box()).toBe(`forward#${named("addmm_1")}`);
    expect(openTo(tree, named("addmm_1"), open)).toBe(false);
    closeAll(tree.home[named("addmm_1")]!.forward!.parent!, open);
    expect(open.size).toBe(before);
  });
  test("what the forward saves is a mark, not an edge to the output", () => {
    state.openStage(9, "forward");
    const forward = state.graph!;
    const seen = picture(forward, hierarchy(forward, new Set(["x"])), new Set());
    expect(seen.boxes.reduce((sum, { marks: { saved } }) => sum + saved, 0)).toBe(9);
    const output = seen.boxOf(forward.nodes.length - 1);
    expect(seen.edges.filter(({ to, kind }) => to === output && kind === "data")).toHaveLength(1);
  });
  test("an output that is saved as well is marked, and an edge to the output all the same", () => {
    const list = ["L", [3], [2], [1]];
    const nodes = [
      node(0),
      node(1, { inputs: [0] }),
      node(2, { inputs: [0] }),
      node(3, { op: "o", inputs: [0, 1, 2], args: [list] }),
    ];
    const forward = {
      ...graphOf(nodes),
      role: "forward",
      outputDescriptors: ["x after mutation", "output", "saved n2"],
    };
    const seen = picture(forward, hierarchy(forward, new Set()), new Set());
    expect(seen.boxes.map(({ marks: { saved } }) => saved)).toEqual([0, 0, 1, 0]);
    expect(seen.edges.filter(({ to }) => to === seen.boxOf(3)).map(({ from }) => from)).toEqual([
      seen.boxOf(0),
      seen.boxOf(1),
    ]);
    const both = {
      ...forward,
      outputDescriptors: ["x after mutation", "output", "saved n0"],
      nodes: [...nodes.slice(0, 3), node(3, { op: "o", inputs: [0, 1], args: [["L", [3], [2], [3]]] })],
    };
    expect([...marksOf(both).saved]).toEqual([0]);
    expect([...marksOf(both).outputs]).toEqual([0, 1]);
  });
  test("a forward has one lane and returns no gradient, whatever was traced in the backward", () => {
    const nodes = [
      node(0),
      node(1, { inputs: [0], backward: true }),
      node(2, { op: "o", inputs: [0, 1], args: [["L", [2], [1]]] }),
    ];
    const forward = { ...graphOf(nodes), role: "forward", outputDescriptors: ["output", "output[1]"] };
    const groups = hierarchy(forward, new Set());
    expect([...groups.lanes]).toEqual([0, 0, 0]);
    expect(groups.roots.backward.size).toBe(0);
    expect(
      picture(forward, groups, new Set()).boxes.every(
        ({ marks: { gradients }, lane }) => gradients === 0 && lane === "forward",
      ),
    ).toBe(true);
    const whole = { ...forward, role: "joint", outputDescriptors: ["output", "gradient of x"] };
    expect(
      picture(whole, hierarchy(whole, new Set()), new Set()).boxes.map(({ marks: { gradients } }) => gradients),
    ).toContain(1);
    expect(
      ["forward", "forward 2", "inference", "backward", "backward.body", "joint"].map((role) =>
        runsBackward(role, "1"),
      ),
    ).toEqual([false, false, false, true, true, true]);
    expect(runsBackward("backward", "0")).toBe(true);
  });
  test("values that share memory are joined by alias edges of their own", () => {
    const seen = picture(joint, tree, everything(tree));
    const alias = seen.edges.filter(({ kind }) => kind === "alias");
    const weight = seen.boxOf(named("primals_1"));
    expect(alias.some(({ from, to }) => from === weight && to === seen.boxOf(named("t")))).toBe(true);
  });
});

describe("graphs that are too large for one view, or lie", () => {
  test("a flat graph of thousands of nodes is cut into groups of consecutive nodes, each of a readable size", () => {
    const flat = made(25_000, () => "");
    const groups = hierarchy(flat, new Set());
    const seen = picture(flat, groups, firstOpen(groups));
    expect(seen.boxes.length).toBeLessThan(200);
    const runs = members(groups.roots.forward).filter((member) => typeof member !== "number");
    // All but the output.
    expect(runs.reduce((sum, run) => sum + (typeof run === "number" ? 0 : run.size), 0)).toBe(24_999);
    for (const group of groups.groups.values())
      expect(group.nodes.length + group.groups.length).toBeLessThanOrEqual(400);
    const open = firstOpen(groups);
    openTo(groups, 17_000, open);
    const opened = picture(flat, groups, open);
    expect(opened.boxes[opened.boxOf(17_000)]!.node).toBe(17_000);
  });
  test("a graph that claims a module per node, sixty deep, neither hangs nor grows without bound", () => {
    const deep = Array.from({ length: 60 }, (_, i) => `m${i}`).join("/");
    const liar = made(4000, (i) =>
      deep
        .split("/")
        .map((name) => `${name}.${i}|T`)
        .join("\n"),
    );
    const start = performance.now();
    const groups = hierarchy(liar, new Set());
    expect(groups.groups.size).toBeLessThan(60_000);
    expect(picture(liar, groups, firstOpen(groups)).boxes.length).toBeLessThan(500);
    expect(performance.now() - start).toBeLessThan(8000);
  }, 30_000);
});

const SIZE = { width: 80, height: 30 };
const laneInputs = (of: Graph, groups: Hierarchy, open: Set<string>, flat = false): LaneInput[] => {
  const seen = picture(of, groups, open, flat);
  return lanesOf(
    seen,
    seen.boxes.map(() => SIZE),
  ).map(({ input }) => input);
};

/** Boxes don't overlap, and each is inside of its cluster, as clusters are of theirs. */
function expectReadable(lane: LaneInput, layout: LaneLayout): void {
  const boxes = Array.from(lane.width, (width, i) => ({
    x: layout.x[i]!,
    y: layout.y[i]!,
    width,
    height: lane.height[i]!,
  }));
  const clusters = Array.from(lane.parent, (_, i) => {
    const [x, y, width, height] = layout.clusters.subarray(4 * i, 4 * i + 4) as unknown as [
      number,
      number,
      number,
      number,
    ];
    return { x, y, width, height };
  });
  boxes.forEach((a, i) =>
    boxes.slice(i + 1).forEach((b) => {
      const apart =
        a.x + a.width <= b.x + 1 || b.x + b.width <= a.x + 1 || a.y + a.height <= b.y + 1 || b.y + b.height <= a.y + 1;
      expect(apart).toBe(true);
    }),
  );
  const inside = (a: (typeof boxes)[number], b: (typeof boxes)[number] | undefined): void => {
    if (b)
      expect(
        a.x >= b.x - 1 && a.y >= b.y - 1 && a.x + a.width <= b.x + b.width + 1 && a.y + a.height <= b.y + b.height + 1,
      ).toBe(true);
  };
  boxes.forEach((box, i) => inside(box, clusters[lane.cluster[i]!]));
  clusters.forEach((cluster, i) => inside(cluster, clusters[lane.parent[i]!]));
  boxes.forEach((box) => inside(box, { x: 0, y: 0, width: layout.width, height: layout.height }));
}

describe("a very large graph", () => {
  const large = network(120_001);
  test("is put into its modules step by step, every node where it belongs, and says how far it is", async () => {
    const shares: number[] = [];
    const groups = await inSteps(grouping(large, new Set()), new AbortController().signal, (share) =>
      shares.push(share),
    );
    const misplaced = large.nodes.filter(
      ({ op, modules, backward }, i) =>
        op !== "o" && groups.home[i]![backward ? "backward" : "forward"]?.path !== modules[2]!.path,
    );
    expect(misplaced).toEqual([]);
    expect(groups.roots.forward.size + groups.roots.backward.size).toBe(120_002); // the output is in both lanes
    expect(shares).toEqual([...shares].sort((a, b) => a - b));
    expect([shares.length, shares.at(-1)]).toEqual([9, 1]);
  });
  test("is left as it is when the reader says so", async () => {
    const stop = new AbortController();
    let steps = 0;
    const work = inSteps(grouping(large, new Set()), stop.signal, () => {
      steps++;
      stop.abort(new Error("enough"));
      vi.spyOn(performance, "now").mockReturnValue(Infinity); // its time is up
    });
    await expect(work).rejects.toThrow("enough");
    vi.restoreAllMocks();
    expect(steps).toBe(1);
  });
});

describe("layouts", () => {
  let graphviz: Graphviz;
  beforeAll(async () => {
    graphviz = await Graphviz.load();
  });
  const dot = (lane: LaneInput): LaneLayout => fromDot(lane, graphviz.layout(toDot(lane), "json0" as Format, "dot"));

  test("graphviz places every box of both lanes, the backward upward", () => {
    const seen = picture(joint, tree, everything(tree));
    const sizes = seen.boxes.map(() => SIZE);
    const lanes = lanesOf(seen, sizes);
    const layouts = lanes.map(({ input }) => dot(input));
    lanes.forEach(({ input }, i) => expectReadable(input, layouts[i]!));
    for (const curve of layouts.flatMap(({ curves }) => curves))
      expect(curve && curve.length >= 8 && curve.length % 6 === 2).toBe(true);
    const scene = join(seen, sizes, lanes, layouts);
    const y = (name: string): number => scene.places[seen.boxOf(named(name))]!.y;
    expect(y("gelu_backward_2")).toBeGreaterThan(y("gelu_backward"));
    expect(scene.routes.some(({ kind }) => kind === "across")).toBe(true);
    expect(scene.clusters).toHaveLength(seen.open.length);
  });
  test("no name from the recording enters the DOT text", () => {
    for (const lane of laneInputs(joint, tree, everything(tree))) expect(toDot(lane)).not.toMatch(/img|blocks|primals/);
  });
  test("the plain layout needs nothing, overlaps nothing and keeps groups together", () => {
    for (const open of [firstOpen(tree), everything(tree)])
      for (const lane of laneInputs(joint, tree, open)) expectReadable(lane, layered(lane));
  });
  test("the plain layout puts a reader below what it reads, and above it in the lane that runs up", () => {
    const [down, up] = laneInputs(joint, tree, everything(tree), true);
    for (const [lane, sign] of [
      [down!, 1],
      [up!, -1],
    ] as const) {
      const { y } = layered(lane);
      lane.from.forEach((from, i) => expect(sign * (y[lane.to[i]!]! - y[from]!)).toBeGreaterThan(0));
    }
  });
  const input = (boxes: number, edges: [number, number][]): LaneInput => ({
    upward: false,
    width: new Float32Array(boxes).fill(80),
    height: new Float32Array(boxes).fill(30),
    cluster: new Int32Array(boxes).fill(-1),
    parent: new Int32Array(0),
    titles: new Float32Array(0),
    from: Int32Array.from(edges, ([from]) => from),
    to: Int32Array.from(edges, ([, to]) => to),
  });
  const WIDTHS = [80, 100, 60, 90];
  const path = (upward: boolean, cluster: number[], parent: number[], titles: number[]): LaneInput => ({
    upward,
    width: Float32Array.from(WIDTHS),
    height: Float32Array.of(30, 30, 40, 30),
    cluster: Int32Array.from(cluster),
    parent: Int32Array.from(parent),
    titles: Float32Array.from(titles),
    from: Int32Array.of(2, 0, 1),
    to: Int32Array.of(3, 1, 2),
  });
  test.each([
    ["alone", [-1, -1, -1, -1], [], []],
    ["in one group", [0, 0, 0, 0], [-1], [60]],
    ["partly in a group", [-1, 0, 0, -1], [-1], [60]],
    ["in a group with a long title", [-1, 0, 0, -1], [-1], [260]],
    ["in two groups, one after the other", [0, 0, 1, 1], [-1, -1], [60, 100]],
    ["in groups in a group", [1, 1, 2, 2], [-1, 0, 0], [60, 100, 50]],
    ["in two nests of groups", [-1, 1, 3, 3], [-1, 0, -1, 2], [60, 100, 50, 50]],
    ["in a group of a group", [0, 1, 0, -1], [-1, 0], [60, 200]],
  ])("boxes that follow one another, %s, stand where graphviz puts them", (_, cluster, parent, titles) => {
    for (const upward of [false, true]) {
      const lane = path(upward, cluster, parent, titles);
      const own = column(lane)!;
      const other = dot(lane);
      expectReadable(lane, own);
      const places = ({ width, height, x, y, clusters }: LaneLayout): number[] => [
        width,
        height,
        ...x,
        ...y,
        ...clusters,
      ];
      const [a, b] = [places(own), places(other)];
      expect(a.length).toBe(b.length);
      a.forEach((place, i) => expect(Math.abs(place - b[i]!)).toBeLessThan(0.6)); // pixels
    }
  });
  test("what is no column is left to graphviz: side paths, circles, two paths, a way back into a group", () => {
    expect(
      column(
        input(3, [
          [0, 1],
          [1, 2],
        ]),
      ),
    ).not.toBeNull();
    expect(column(input(1, []))).not.toBeNull();
    for (const edges of [
      [
        [0, 1],
        [1, 2],
        [0, 2],
      ],
      [
        [0, 1],
        [0, 2],
      ],
      [
        [0, 2],
        [1, 2],
      ],
      [
        [1, 2],
        [2, 1],
      ],
      [[0, 1]],
      [],
    ] as [number, number][][]) {
      expect(column(input(3, edges))).toBeNull();
    }
    expect(column(input(0, []))).toBeNull();
    expect(column(path(false, [0, -1, 0, 0], [-1], [60]))).toBeNull();
  });
  test("in the plain layout no edge runs under a box, in groups and flat, in both lanes", () => {
    const deep = network(240, 6);
    const groups = hierarchy(deep, new Set());
    const lanes = [
      ...[firstOpen(tree), everything(tree)].flatMap((open) => laneInputs(joint, tree, open)),
      ...laneInputs(joint, tree, new Set(), true),
      ...laneInputs(deep, groups, everything(groups)),
      ...laneInputs(deep, groups, firstOpen(groups)),
      ...laneInputs(deep, groups, new Set(), true),
      input(5, [
        [0, 1],
        [1, 2],
        [2, 3],
        [0, 3],
        [0, 4],
        [3, 1], // a way back
      ]),
    ];
    for (const lane of lanes) expect(crossings(lane, layered(lane))).toBe(0);
    const straight = lanes.map((lane) => crossings(lane, { ...layered(lane), curves: [] }));
    expect(Math.max(...straight)).toBeGreaterThan(10); // so the test can tell
  });
  test("graphviz leads edges around boxes in a picture of a readable size", () => {
    for (const lane of laneInputs(joint, tree, everything(tree))) expect(crossings(lane, dot(lane))).toBe(0);
  });
  test("the plain layout survives a cycle, which closed modules can make", () => {
    const cycle = input(3, [
      [0, 1],
      [1, 2],
      [2, 0],
    ]);
    expectReadable(cycle, layered(cycle));
    expect(fromDot(cycle, graphviz.layout(toDot(cycle), "json0" as Format, "dot")).x).toHaveLength(3);
  });
  test("the plain layout breaks an endless row", () => {
    const wide = input(2000, []);
    const layout = layered(wide);
    expect(layout.width).toBeLessThan(8000);
    expectReadable(input(60, []), layered(input(60, [])));
  });
  test("the plain layout takes 20,000 nodes in about a second, flat and in groups", () => {
    const deep = network(20_000);
    const groups = hierarchy(deep, new Set());
    for (const lanes of [laneInputs(deep, groups, new Set(), true), laneInputs(deep, groups, everything(groups))]) {
      const before = process.cpuUsage(); // not the clock: other work on the machine may stop it
      for (const lane of lanes) layered(lane);
      const { user, system } = process.cpuUsage(before); // microseconds
      expect((user + system) / 1000).toBeLessThan(3000);
    }
  });
  test("a lane is stretched to the height of the other, rows staying rigid and groups around their boxes", () => {
    const lane = laneInputs(joint, tree, everything(tree))[0]!;
    const layout = dot(lane);
    const taller = stretch(layout, lane.height, layout.height + 200);
    expectReadable(lane, taller);
    expect(taller.height).toBeCloseTo(layout.height + 200, 0);
    const ends = (at: LaneLayout): number[] => at.curves.map((curve, i) => curve!.at(-1)! - at.y[lane.to[i]!]!);
    ends(taller).forEach((gap, i) => expect(gap).toBeCloseTo(ends(layout)[i]!, 0));
  });
});

test("edges of a scene begin and end at their boxes", () => {
  const seen = picture(joint, tree, firstOpen(tree));
  const sizes = seen.boxes.map(() => SIZE);
  const lanes = lanesOf(seen, sizes);
  const scene: Scene = join(
    seen,
    sizes,
    lanes,
    lanes.map(({ input }) => layered(input)),
  );
  for (const { from, to, points } of scene.routes) {
    for (const [box, x, y] of [
      [from, points[0]!, points[1]!],
      [to, points.at(-2)!, points.at(-1)!],
    ] as const) {
      const place = scene.places[box]!;
      expect(
        x >= place.x - 1 && x <= place.x + place.width + 1 && y >= place.y - 1 && y <= place.y + place.height + 1,
      ).toBe(true);
    }
  }
});
