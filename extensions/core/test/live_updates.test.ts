// A recording that grows while it is looked at.

import { readFileSync } from "node:fs";

import { beforeEach, describe, expect, test, vi } from "vitest";

import { decodeRecording } from "../src/decode";
import { following } from "../src/following";
import { Recording } from "../src/model";
import { same } from "../src/live_updates";
import { type Source, WholeSource } from "../src/source";
import { State } from "../src/state";
import type { CompilationHead, CompilationPart, RecordingData, RecordingIndex } from "../src/wire";

const file = new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url)));

/** A process that has recorded `stages` stages of the first compilation, and only `ids`. */
class Process implements Source {
  stages = 10;
  ids = ["0", "1"];
  asked = 0;
  loaded: string[] = [];
  private readonly whole: WholeSource;

  constructor(data: RecordingData) {
    this.whole = new WholeSource(data);
  }

  get strings(): readonly string[] {
    return this.whole.strings;
  }

  index(): RecordingIndex {
    this.asked++;
    const index = structuredClone(this.whole.index());
    const heads = index.compilations.map((head) =>
      head.id === "0" ? { ...head, stages: this.stages, revision: this.stages } : head,
    );
    return { ...index, compilations: this.ids.map((id) => heads.find((head) => head.id === id)!) as CompilationHead[] };
  }

  compilation(id: string): CompilationPart {
    this.loaded.push(id);
    const part = structuredClone(this.whole.compilation(id));
    return id === "0"
      ? { ...part, compilation: { ...part.compilation, stages: part.compilation.stages.slice(0, this.stages) } }
      : part;
  }

  unpaint(compilation: string, label: string): void {
    this.whole.unpaint(compilation, label);
  }

  graph(id: string, number: number): ReturnType<WholeSource["graph"]> {
    return this.whole.graph(id, number);
  }

  code(id: string, stage: number): ReturnType<WholeSource["code"]> {
    return this.whole.code(id, stage);
  }

  rows(kind: string): ReturnType<WholeSource["rows"]> {
    this.loaded.push(kind);
    return this.whole.rows(kind);
  }
}

let process: Process;
let state: State;
beforeEach(async () => {
  process = new Process(await decodeRecording(file));
  state = new State(await Recording.open(process));
});

describe("a recording that grows", () => {
  test("gets its late stages in their place, and what is open stays open", async () => {
    state.openStage(state.compilation.stages.findIndex(({ name }) => name === "partition"));
    state.openNode(3);
    const { graph, node, stage } = state;
    const saved = state.compilation.saved_tensors;
    process.stages = 15;
    await state.refresh();
    expect(state.compilation.stages.length).toBe(15);
    expect(state.news).toBe("5 more stages");
    expect([state.graph, state.node, state.stage]).toEqual([graph, node, stage]);
    expect(state.graph).toBe(graph); // not drawn anew
    expect(state.stage).toBe(stage);
    expect(state.compilation.saved_tensors).toBe(saved);
  });

  test("is not touched where nothing is new", async () => {
    const index = state.recording.index;
    const told = vi.fn();
    state.subscribe(told);
    await state.refresh();
    expect(state.recording.index).toBe(index);
    expect(told).not.toHaveBeenCalled();
    expect(process.loaded).toEqual(["0"]);
  });

  test("names a compilation that came, and loads none that nobody looks at", async () => {
    process.ids = ["0", "1", "2"];
    await state.refresh();
    expect(state.recording.index.compilations.map(({ id }) => id)).toEqual(["0", "1", "2"]);
    expect(state.news).toBe("1 more compilation");
    expect(process.loaded).toEqual(["0"]);
  });

  test("keeps the compilation that is open when the process drops it, and follows one that moves", async () => {
    process.ids = ["1", "2"];
    await state.refresh();
    expect(state.recording.index.compilations.map(({ id }) => id)).toEqual(["0", "1", "2"]);
    expect(state.compilation.id).toBe("0");
    state.openCompilation(1);
    state.compareWith({ compilation: 2 });
    process.ids = ["2", "1"];
    await state.refresh();
    expect(state.compilation.id).toBe("1");
    expect(state.selection).toMatchObject({ compilation: 1, against: { compilation: 0 } });
  });
});

test("parts of a recording are compared by what they say", () => {
  expect(same(new Map([[1, { a: [1, null] }]]), new Map([[1, { a: [1, null] }]]))).toBe(true);
  expect(same(new Map([["x", 1]]), new Map([["x", 2]]))).toBe(false);
  expect(same({ a: 1 }, { a: 1, b: undefined })).toBe(false);
  expect(same([1, 2], [1])).toBe(false);
});

test("many notices are one question, and none is lost", async () => {
  vi.useFakeTimers();
  try {
    let asked = 0;
    let answer = (): void => {};
    const news = following(() => {
      asked++;
      return new Promise<void>((resolve) => (answer = resolve));
    });
    for (let i = 0; i < 50; i++) news.notice();
    await vi.advanceTimersByTimeAsync(1);
    expect(asked).toBe(1);
    news.notice(); // while the kernel answers: the answer may not have it
    await vi.advanceTimersByTimeAsync(10_000);
    expect(asked).toBe(1); // never two at a time
    answer();
    await vi.advanceTimersByTimeAsync(200);
    expect(asked).toBe(1); // the pause
    await vi.advanceTimersByTimeAsync(100_000);
    expect(asked).toBe(2);
    answer();
    news.stop();
    news.notice();
    await vi.advanceTimersByTimeAsync(100_000);
    expect(asked).toBe(2);
  } finally {
    vi.useRealTimers();
  }
});
