import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { Recording } from "../src/model";
import { State } from "../src/state";
import { graphsOf } from "../src/views/memory/halves";
import { layersOf } from "../src/views/memory/layers";
import { devicesOf, onDevice, type Plan, planOf, UnknownSizes } from "../src/views/memory/plan";
import { layersIn, rowsAt } from "../src/views/memory/rows";
import { evaluated } from "../src/views/memory/sizes";
import { peaksOf, planOfStep } from "../src/views/memory/step";

interface Planned {
  readonly moments: readonly [node: string, alive: number][];
  readonly holders: readonly (string | number)[][];
}

const read = (name: string): Uint8Array => new Uint8Array(readFileSync(new URL(name, import.meta.url)));
const kept = JSON.parse(new TextDecoder().decode(read("fixture.memory.json"))) as Record<string, Planned>;

async function opened(id: string): Promise<State> {
  const recording = Recording.whole(await decodeRecording(read("fixture.aotviz")));
  const state = new State(recording, { compilation: id });
  recording.load([{ what: "compilation", compilation: state.selection.compilation }]);
  const count = state.compilation.stages.flatMap(({ graphs }) => [...graphs.values()]);
  recording.load(count.map((graph) => ({ what: "graph", compilation: state.selection.compilation, graph })));
  return state;
}

function planIn(state: State, sizes = state.compilation.sizes): Plan {
  return planOf(graphsOf(state), state.compilation, (number) => state.recording.text(number), sizes);
}

test.each(Object.keys(kept))("the plan of %s is that of Python", async (name) => {
  const [id, ...given] = name.split(" ");
  const state = await opened(id!);
  const sizes = given.map((one) => one.split("=")).map(([symbol, size]) => [symbol!, Number(size)] as const);
  const plan = planIn(state, new Map([...state.compilation.sizes, ...sizes]));
  expect(plan.moments.map(({ node }, at) => [node.name, plan.alive[at]])).toEqual(kept[name]!.moments);
  const holders = plan.holders.map((one) => [
    one.madeAt,
    one.maker.descriptor || one.maker.name,
    one.kind,
    one.nbytes,
    Math.floor(one.until),
    one.by,
  ]);
  const last = plan.moments.length - 1; // what is made after everything has run is at no moment
  const seen = holders.filter(([made]) => (made as number) <= last);
  expect(sorted(seen)).toEqual(sorted(kept[name]!.holders));
});

function sorted(rows: readonly (readonly unknown[])[]): unknown[] {
  return rows.map((row) => JSON.stringify(row)).sort();
}

test.each(["kind", "module"] as const)("the layers by %s add up to what is alive", async (by) => {
  const plan = planIn(await opened("0"));
  const layers = layersOf(plan, by);
  expect(layers.length).toBeGreaterThan(1);
  plan.alive.forEach((alive, at) => expect(layers.reduce((sum, { bytes }) => sum + bytes[at]!, 0)).toBe(alive));
});

test("the rows of a moment add up to what is alive, and equal layers are one row", async () => {
  const plan = planIn(await opened("0"));
  for (let at = 0; at < plan.moments.length; at++) {
    const rows = rowsAt(plan, at);
    expect(rows.reduce((sum, { nbytes }) => sum + nbytes, 0)).toBe(plan.alive[at]);
  }
  const folded = rowsAt(plan, 0).find(({ holders }) => holders.length > 1)!;
  expect(folded.module).toContain("*");
  expect(layersIn(folded)).toMatch(/^0–\d+$/);
});

test("what differs from equal layers has a row that says so", async () => {
  const plan = planIn(await opened("0"));
  const { holders } = rowsAt(plan, 0).find((row) => row.holders.length > 2)!;
  holders[1]!.nbytes += 4;
  const odd = rowsAt(plan, 0).filter((row) => row.odd);
  expect(odd.map((row) => row.holders)).toEqual([[holders[1]]]);
  expect(odd[0]!.odd!.holders).toHaveLength(holders.length - 1);
});

test("sizes that are not known are told, not guessed", async () => {
  const state = await opened("1");
  expect(() => planIn(state, new Map())).toThrow(UnknownSizes);
  expect(() => planIn(state, new Map())).toThrow("s0");
});

test("a symbolic size is read as Python reads it", () => {
  const sizes = new Map([
    ["s0", 3],
    ["s1", 9],
  ]);
  const of = (text: string): number | null => evaluated(text, sizes);
  expect(["2*s0 + s1//4", "Max(1, s0)", "-(s0 - 5) % 4", "Mod(-1, 4)", "7"].map(of)).toEqual([8, 3, 2, 3, 7]);
  expect(["s0**2*s1", "-s0**2", "2**s0**2", "(s0 + 1)**0"].map(of)).toEqual([81, -9, null, 1]);
  expect(["s2", "2 *", "constructor(1)", "s0 + (1", "", "1/0", "s0//0"].map(of)).toEqual(Array(7).fill(null));
});

test("a stranger's sizes are drawn as finite numbers of bytes", async () => {
  const state = await opened("0");
  const huge = {
    ...state.compilation,
    values: state.compilation.values.map((value) => ({
      ...value,
      shape: Array(40).fill(2 ** 60) as number[],
      stride: Array(40).fill(2 ** 60) as number[],
    })),
  };
  const plan = planOf(graphsOf(state), huge, (number) => state.recording.text(number), new Map());
  expect(plan.alive.every(Number.isFinite)).toBe(true);
  expect(plan.alive[plan.peak]).toBeGreaterThan(2 ** 50);
});

test("a stranger's training step is drawn within its moments, and without nodes that are not there", () => {
  const graphs = [{ phase: "forward", compilation: "0", stage: "lower", role: "forward" }];
  const node = { index: 0, op: "f", target: 9, descriptor: 1, module: 1, file: -1, line: 0, code: 7, checkpoint: -1 };
  const holder = {
    maker: 0,
    kind: 99,
    nbytes: 2 ** 60,
    dtype: -4,
    shape: [2],
    made_at: -5,
    held_until: 2 ** 53,
    held_by: 3,
    device: 2,
  };
  const plan = planOfStep({
    texts: ["mul", "", "meta", "cpu"],
    graphs,
    nodes: [
      { ...node, graph: 0, name: 0 },
      { ...node, graph: 7, name: 0 },
    ],
    moments: [0, 1, 5, -1, 0],
    holders: [holder, { ...holder, maker: 5 }, { ...holder, made_at: 2 ** 53, held_until: -1, nbytes: -8, device: 3 }],
  });
  expect(plan.moments.map(({ node: { name }, phase }) => `${name} ${phase}`)).toEqual(["mul forward", "mul forward"]);
  expect([...plan.alive]).toEqual([2 ** 50, 2 ** 50]);
  expect(rowsAt(plan, 0).map(({ name }) => name)).toEqual(["mul"]);
  expect(layersOf(plan, "kind").map(({ name }) => name)).toEqual(["intermediate"]);
  expect(peaksOf(plan)).toEqual([{ phase: "forward", moment: 0 }]);
  expect(devicesOf(plan)).toEqual(["meta", "cpu"]);
  expect([...onDevice(plan, "cpu").alive]).toEqual([0, 0]);
  expect(plan.find("0", "forward", "mul").holder).not.toBeNull();
  expect(plan.find("1", "forward", "mul")).toEqual({ moment: -1, holder: null });
});
