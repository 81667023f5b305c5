import { readFileSync } from "node:fs";

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { changes, difference } from "../src/changes";
import { diffNodes } from "../src/code/nodes";
import { decodeRecording } from "../src/decode";
import { quoted, unquoted } from "../src/dom";
import { type Graph } from "../src/graph";
import { Recording } from "../src/model";
import { related } from "../src/related";
import { State } from "../src/state";
import { differingFacts } from "../src/views/compilations/facts";
import { EVERYTHING, list } from "../src/views/compilations/list";
import { matched } from "../src/views/compilations/comparison";
import type { CacheAnswer, CompilationHead, RecordingIndex } from "../src/wire";

let state: State;
beforeEach(async () => {
  const file = new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url)));
  state = new State(Recording.whole(await decodeRecording(file)));
});

function head(id: string, name: string, more: Partial<CompilationHead> = {}): CompilationHead {
  return {
    id,
    name,
    kind: "training",
    started_unix_ns: 0,
    elapsed_ns: 0,
    stages: 0,
    nodes: 0,
    compile_id: "",
    frame: -1,
    attempts: 1,
    rank: -1,
    because: [],
    options: new Map(),
    error: null,
    cache: null,
    revision: 0,
    ...more,
  };
}

const ANSWER: CacheAnswer = {
  outcome: "hit",
  words: "",
  place: "",
  key: "",
  nearest: "",
  differs: [],
  saved_ns: 0,
  saved_at_unix_s: 0,
};
const heads = [
  head("0", "step", { nodes: 9, elapsed_ns: 5 }),
  head("1", "loss", { kind: "inference", nodes: 30 }),
  head("2", "gradient of step", { nodes: 4 }),
  head("3", "step", { because: ["x.shape changed"], nodes: 9, elapsed_ns: 7 }),
  head("4", "gradient of step"),
  head("5", "loss", {
    error: { stage: "trace", type: "RuntimeError", message: "boom", ran_in_eager: false, place: "" },
  }),
];
const ids = (query: Partial<typeof EVERYTHING>): string =>
  list(heads, { ...EVERYTHING, ...query })
    .map(({ head: { id } }) => id)
    .join("");

describe("the list of compilations", () => {
  test("finds those in which all words occur", () => {
    expect(ids({ text: "STEP gradient" })).toBe("24");
    expect(ids({ text: "shape" })).toBe("3");
    expect(ids({ text: "boom" })).toBe("5");
    expect(ids({ text: "nowhere" })).toBe("");
  });
  test("takes a rank with its number for one word", () => {
    const logged = ["rank 0: 1/0", "rank 1: 0/0", "rank 10: 0/1"].map((id) =>
      head(id, "step", { rank: Number(/\d+/.exec(id)![0]) }),
    );
    const found = (text: string): string[] => list(logged, { ...EVERYTHING, text }).map((row) => row.head.id);
    expect(found("Rank 1")).toEqual(["rank 1: 0/0"]);
    expect(found("rank 10: 0/1")).toEqual(["rank 10: 0/1"]);
    expect(found("rank 0 step")).toEqual(["rank 0: 1/0"]);
    expect(found("rank")).toHaveLength(3);
  });
  test("filters and sorts, equals in their order", () => {
    expect(ids({ kind: "inference" })).toBe("1");
    expect(ids({ only: "again" })).toBe("3");
    expect(ids({ only: "failed" })).toBe("5");
    const refused = head("6", "step", {
      error: { stage: "joint", type: "Refused", message: "t_", ran_in_eager: true, place: "a.py:1" },
    });
    const of = (query: Partial<typeof EVERYTHING>): string[] =>
      list([...heads, refused], { ...EVERYTHING, ...query }).map((row) => row.head.id);
    expect(of({ only: "eager" })).toEqual(["6"]);
    expect(of({ only: "failed" })).toEqual(["5"]);
    expect(of({ text: "ran in eager" })).toEqual(["6"]);
    const answers = ["hit", "miss", "guard miss"].map((outcome, i) =>
      head(`c${i}`, "cached", { cache: { ...ANSWER, outcome, words: `because ${outcome}` } }),
    );
    const asked = (query: Partial<typeof EVERYTHING>): string[] =>
      list([...heads, ...answers], { ...EVERYTHING, ...query }).map((row) => row.head.id);
    expect(asked({ only: "hit" })).toEqual(["c0"]);
    expect(asked({ only: "missed" })).toEqual(["c1", "c2"]);
    expect(asked({ text: "cache guard miss" })).toEqual(["c2"]);
    expect(ids({ by: "nodes", down: true })).toBe("103245");
    expect(ids({ by: "time", down: true })).toBe("301245");
  });
});

describe("what belongs to a compilation", () => {
  const index = { compilations: heads } as unknown as RecordingIndex;
  const of = (position: number): string[] => related(index, position).map(({ kind, head: { id } }) => `${kind} ${id}`);
  test("is its programs for gradients of gradients, and the next of the same function", () => {
    expect(of(0)).toEqual(["gradient 2", "again 3"]);
    expect(of(3)).toEqual(["earlier 0", "gradient 4"]);
  });
  test("is, of such a program, the compilation that led to it", () => {
    expect(of(4)).toEqual(["of 3", "earlier 2"]);
  });
  test("is of its own frame and rank where torch says which", () => {
    const logged = ["0/0", "1/0", "0/1", "0/0"].map((compile_id, i) =>
      head(String(i), "f", { compile_id, rank: i === 3 ? 1 : 0 }),
    );
    expect(related({ compilations: logged } as unknown as RecordingIndex, 0).map(({ position }) => position)).toEqual([
      2,
    ]);
    expect(related({ compilations: logged } as unknown as RecordingIndex, 1)).toEqual([]);
  });
  test("is of its own function where torch counts from 0 again after a reset", () => {
    const logged = ["0/0", "0/1", "0/0", "0/1"].map((compile_id, i) =>
      head(String(i), "f", { compile_id, frame: i >> 1 }),
    );
    expect(related({ compilations: logged } as unknown as RecordingIndex, 1).map(({ position }) => position)).toEqual([
      0,
    ]);
    expect(related({ compilations: logged } as unknown as RecordingIndex, 2).map(({ position }) => position)).toEqual([
      3,
    ]);
  });
  test("is of its own frame where Dynamo asked for it, which its name says", () => {
    const asked = ["f [0/0]", "f [1/0]", "f [0/1]"].map((name, i) => head(String(i), name));
    expect(related({ compilations: asked } as unknown as RecordingIndex, 0).map(({ position }) => position)).toEqual([
      2,
    ]);
    expect(related({ compilations: asked } as unknown as RecordingIndex, 1)).toEqual([]);
  });
});

describe("what a stage changed", () => {
  test("is counted by values, as often as they occur", () => {
    expect(difference([1, 2, 2, -1], [2, 3, -1, -1])).toEqual({ added: 2, removed: 2 });
    expect(difference([], [5])).toEqual({ added: 1, removed: 0 });
  });
  test("is nothing where the graph is the same one", () => {
    const { compilation, recording } = state;
    const trace = compilation.stages.findIndex(({ name }) => name === "trace");
    const [joint] = changes(recording, compilation, trace);
    expect(joint).toMatchObject({ role: "joint", isNew: true, added: 0 });
    expect(changes(recording, compilation, trace + 1)[0]).toMatchObject({ role: "joint", isNew: false });
    expect(joint!.bytes).toBeGreaterThan(0);
    const partition = compilation.stages.findIndex(({ name }) => name === "partition");
    expect(changes(recording, compilation, partition).map(({ role, isNew }) => [role, isNew])).toEqual([
      ["forward", true],
      ["backward", true],
    ]);
    expect(changes(recording, compilation, partition + 1)).toEqual(
      changes(recording, compilation, partition).map((change) => ({ ...change, added: 0, removed: 0, isNew: false })),
    );
  });
});

describe("the diff by nodes", () => {
  const graph = (stage: string, role: string): Graph => {
    state.openStage(
      state.compilation.stages.findIndex(({ name }) => name === stage),
      role,
    );
    return state.graph!;
  };
  test("follows a value that got another name", () => {
    const [before, after] = [graph("trace", "joint"), graph("decompose", "joint")];
    const rows = diffNodes(state.recording, before, after, true);
    const renamed = rows.find((row) => row.before?.name === "addmm_1" && row.after);
    expect(renamed).toMatchObject({ change: "changed", after: { name: "add_bias_1" } });
    expect(renamed!.differs).toContain("name");
  });
  test("has every node of both sides once", () => {
    for (const same of [true, false]) {
      const [before, after] = [graph("trace", "joint"), graph("partition", "forward")];
      const rows = diffNodes(state.recording, before, after, same);
      const sides = (side: "before" | "after"): number[] =>
        rows.flatMap((row) => row[side]?.index ?? []).sort((a, b) => a - b);
      expect(sides("before")).toEqual([...before.nodes.keys()]);
      expect(sides("after")).toEqual([...after.nodes.keys()]);
    }
  });
  test("says of a graph and itself that nothing differs", () => {
    const joint = graph("trace", "joint");
    for (const same of [true, false])
      expect(diffNodes(state.recording, joint, joint, same).every(({ change }) => change === "same")).toBe(true);
  });
});

describe("two compilations", () => {
  test("are compared stage by stage of the same name", () => {
    const { recording } = state;
    recording.load([{ what: "compilation", compilation: 1 }]);
    const rows = matched(recording.compilation(0), recording.compilation(1));
    expect(rows.filter(({ a }) => a >= 0).map(({ a }) => a)).toEqual([...recording.compilation(0).stages.keys()]);
    for (const { name, b } of rows) if (b >= 0) expect(recording.compilation(1).stages[b]!.name).toBe(name);
  });
  test("show the facts that differ, and no others", () => {
    const [a] = [state.recording.compilation(0)];
    expect(differingFacts(a, a)).toEqual([]);
    const b = { ...a, inputs: a.inputs.map((input, i) => (i === 0 ? { ...input, dtype: "torch.float64" } : input)) };
    expect(differingFacts(a, b)).toEqual([
      { about: `input ${a.inputs[0]!.name}`, fact: "dtype", a: a.inputs[0]!.dtype, b: "torch.float64" },
    ]);
  });
  test("their graphs are found by the name of the stage", () => {
    state.openStage(state.compilation.stages.findIndex(({ name }) => name === "trace"));
    state.compareWith({ compilation: 1 });
    expect(state.opposite).toBeNull(); // it is not loaded
    state.recording.load(state.oppositeNeed());
    const there = state.opposite!;
    expect(state.recording.compilation(1).stages[there.stage]!.name).toBe("trace");
    expect(state.oppositeNeed()).toContainEqual({ what: "graph", compilation: 1, graph: 0 });
    state.compareWith({ compilation: 2 });
    expect(state.opposite).toBeNull();
    state.compareWith(null);
    state.openStage(state.compilation.stages.findIndex(({ name }) => name === "decompose"));
    expect(state.opposite).toMatchObject({ compilation: 0, role: "joint" });
  });
});

describe("a sentence of a recording", () => {
  beforeEach(() => {
    vi.stubGlobal("document", {
      createElement: (tag: string) => ({ tag, text: "", append(text: string) { this.text += text; } }), // prettier-ignore
    });
  });
  afterEach(() => vi.unstubAllGlobals());

  test("shows code between backticks as code, and no backticks", () => {
    expect(quoted("captured `f` at `model.py:3`")).toMatchObject([
      "captured ",
      { tag: "code", text: "f" },
      " at ",
      { tag: "code", text: "model.py:3" },
      "",
    ]);
  });

  test("keeps a backtick that has no partner", () => {
    expect(quoted("cut at `f` and `g")).toMatchObject(["cut at ", { tag: "code", text: "f" }, " and `g"]);
    expect(quoted("none")).toBe("none");
  });

  test("has no backticks in a tooltip either", () =>
    expect(unquoted("captured `f` at `model.py:3`")).toBe("captured f at model.py:3"));
});
