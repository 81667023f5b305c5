import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { beforeEach, describe, expect, test } from "vitest";

import { listing } from "../src/code/python";
import { decodeRecording } from "../src/decode";
import { Recording } from "../src/model";
import { replays } from "../src/replays";
import { KernelSource, type Question, WholeSource } from "../src/source";
import { State } from "../src/state";
import type { CompilationData, GraphSnapshot, ValueRecord } from "../src/wire";

const read = (name: string): Uint8Array => new Uint8Array(readFileSync(new URL(name, import.meta.url)));
const parts = JSON.parse(new TextDecoder().decode(read("fixture.parts.json"))) as Record<string, string>;

/** A kernel that has the fixture; it counts what it is asked. */
class Kernel {
  readonly asked: string[] = [];
  down = false;

  readonly ask = (question: Question): Promise<Uint8Array> => {
    this.asked.push(JSON.stringify(question));
    const answer = parts[JSON.stringify(question)];
    if (this.down || answer === undefined) return Promise.reject(new Error("The kernel does not answer."));
    return Promise.resolve(new Uint8Array(Buffer.from(answer, "base64")));
  };
}

let kernel: Kernel;
let recording: Recording;
let whole: Recording;
beforeEach(async () => {
  kernel = new Kernel();
  recording = await Recording.open(new KernelSource(kernel.ask));
  whole = Recording.whole(await decodeRecording(read("fixture.aotviz")));
});

/** Returns when the state stops changing: what it asked for has come, and nothing more was asked. */
async function settled(state: State): Promise<void> {
  for (;;) {
    const before = kernel.asked.length;
    await recording.load([{ what: "compilation", compilation: state.selection.compilation }]);
    await recording.load(state.graphNeed());
    await Promise.resolve();
    if (kernel.asked.length === before && state.graphNeed().every((need) => recording.has(need))) return;
  }
}

test("what a graph makes counts once a storage, whatever the storages' numbers are, and without what it is given", async () => {
  const data = await decodeRecording(read("fixture.aotviz"));
  const dtype = data.strings.indexOf("torch.float32");
  const value = (storage: number, ...shape: (number | string)[]): ValueRecord => ({
    kind: "tensor",
    dtype,
    shape,
    stride: [],
    offset: 0,
    device: -1,
    storage,
    requires_grad: false,
    parts: [],
    text: -1,
  });
  const tuple = { ...value(-1), kind: "tuple", parts: [2, 3, 3] };
  const bytes = (op: string, numbers: number[], values: ValueRecord[]): number => {
    const graph = { ...data.compilations[0]!.graphs[0]!, op, value: numbers } as GraphSnapshot;
    const id = "made";
    return new WholeSource({
      ...data,
      compilations: [{ ...data.compilations[0]!, id, values, graphs: [graph], stages: [] }],
    }).compilation(id).graph_bytes[0]!;
  };
  const values = [
    value(0, 2),
    value(0, 100),
    value(7, 3),
    value(2 ** 60, 5),
    tuple,
    value(-1, 1),
    value(-1, 1),
    value(7, 4),
  ];
  // A view of the input makes nothing.
  expect(bytes("pffffffo", [0, 1, 4, 5, 6, 7, -1, 4], values)).toBe(4 * (4 + 5 + 1 + 1));
  expect(bytes("pf", [0, 1], [value(0, 2), value(0, "s0")])).toBe(0);
  expect(bytes("pf", [0, 1], [value(0, 2), value(1, "s0")])).toBe(-1);
});

describe("a recording in a kernel", () => {
  test("is known by its index alone", () => {
    expect(kernel.asked).toEqual(['["index"]']);
    expect(recording.index).toEqual(whole.index);
    expect(recording.compilation(0).name).toBe("Net");
    expect(recording.compilation(0).stages).toEqual([]);
  });

  test("sends the rows of each kind, once, and they are those of a whole recording", async () => {
    for (const kind of recording.index.rows.keys()) {
      expect(recording.rows(kind)).toBeUndefined();
      await recording.load([{ what: "rows", kind }]);
      expect(recording.load([{ what: "rows", kind }])).toBeNull();
      await whole.load([{ what: "rows", kind }]);
      const { text_table, ...part } = recording.rows(kind)!.part;
      expect({ ...part, text_table: undefined }).toEqual({ ...whole.rows(kind)!.part, text_table: undefined });
      for (const number of text_table.numbers) expect(recording.rows(kind)!.text(number)).toBe(whole.text(number));
    }
    expect(recording.rows("timeline")!.part.own.size).toBe(recording.index.rows.get("timeline"));
  });

  test("sends what is selected, and nothing twice", async () => {
    const state = new State(recording);
    await settled(state);
    expect(kernel.asked).toEqual(['["index"]', '["compilation","0"]', '["graph","0",0]']);
    expect(state.graph!.nodes.length).toBe(state.recording.graphValues(state.compilation, 0).length);
    state.openStage(9);
    await settled(state);
    state.openStage(0);
    state.openStage(9);
    await settled(state);
    expect(kernel.asked.filter((question) => question.startsWith('["graph"'))).toEqual([
      '["graph","0",0]',
      '["graph","0",2]',
    ]);
  });

  test("says the same as the whole, for every graph of every compilation", async () => {
    for (const position of recording.index.compilations.keys()) {
      await recording.load([{ what: "compilation", compilation: position }]);
      const [theirs, ours] = [recording.compilation(position), whole.compilation(position)];
      whole.load([{ what: "compilation", compilation: position }]);
      for (const [i, stage] of theirs.stages.entries()) {
        for (const role of stage.graphs.keys()) {
          await recording.load(recording.graphNeed(position, i, role));
          whole.load(whole.graphNeed(position, i, role));
          const a = listing(recording, theirs, recording.graph(theirs, stage, role)!);
          const b = listing(whole, ours, whole.graph(ours, ours.stages[i]!, role)!);
          expect(a.lines).toEqual(b.lines);
        }
        if (stage.code.size) await recording.load([{ what: "code", compilation: position, stage: i }]);
        expect(theirs.stages[i]!.code).toEqual(ours.stages[i]!.code);
      }
      const found = (of: Recording, compilation: CompilationData): unknown =>
        replays(compilation, of.cacheLookups(compilation), (number) => of.text(number));
      expect(found(recording, theirs)).toEqual(found(whole, ours));
      expect(found(whole, ours)).toHaveLength(["training", "inference"].includes(ours.kind) && !ours.error ? 1 : 0);
      expect(theirs.inputs).toEqual(ours.inputs);
      expect(theirs.wrapper).toEqual(ours.wrapper);
    }
  });

  test("a failure is told, and asking again tries again", async () => {
    kernel.down = true;
    await expect(recording.load([{ what: "compilation", compilation: 0 }])).rejects.toThrow("does not answer");
    kernel.down = false;
    await recording.load([{ what: "compilation", compilation: 0 }]);
    expect(recording.compilation(0).stages).toHaveLength(15);
  });

  test("a part that is damaged is refused", async () => {
    const source = new KernelSource(() => Promise.resolve(new Uint8Array(gzipSync(Uint8Array.of(0x80)))));
    await expect(source.graph("0", 0)).rejects.toThrow("GraphPart.graph should be a GraphSnapshot, but is nothing");
  });
});

describe("the selection", () => {
  test("follows a node into a graph that is still on its way", async () => {
    const state = new State(recording);
    await settled(state);
    state.openStage(7);
    await settled(state);
    state.openNode(state.graph!.nodes.findIndex(({ name }) => name === "addmm_1"));
    state.openStage(8);
    state.openStage(9); // before the one of stage 8 is there
    await settled(state);
    expect(state.node?.name).toBe("add_bias_1"); // the same value
  });

  test("is found again by its bookmark", async () => {
    const state = new State(recording);
    await settled(state);
    state.openNamed(9, "backward", "gelu_backward");
    state.openView("graph");
    await settled(state);
    expect(state.node?.name).toBe("gelu_backward");
    const again = new State(await Recording.open(new KernelSource(kernel.ask)), state.bookmark);
    expect(again.selection.stage).toBe(0); // not known yet
    for (let i = 0; i < 20 && !again.node; i++) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(again.selection).toEqual(state.selection);
  });

  test("a bookmark of something that is gone opens the beginning", () => {
    const state = new State(whole, { compilation: "77", stage: "nowhere", role: "upward", node: "x" });
    expect(state.selection).toEqual(new State(whole).selection);
  });
});
