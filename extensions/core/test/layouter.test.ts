// The choice of a layout, with workers that answer, fail, are silent or are barred.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import type { Answer, Layouter as LayouterOf, Question } from "../src/layout/layouter";
import { column } from "../src/layout/column";
import { toDot } from "../src/layout/dot";
import { layered } from "../src/layout/layered";
import type { LaneInput } from "../src/layout/placed";
import { warmupGraph } from "../src/layout/graphviz_warmup";

// Boxes that all read the first one: no column.
const lane = (boxes: number): LaneInput => ({
  upward: false,
  width: new Float32Array(boxes).fill(80),
  height: new Float32Array(boxes).fill(30),
  cluster: new Int32Array(boxes).fill(-1),
  parent: new Int32Array(0),
  titles: new Float32Array(0),
  from: new Int32Array(boxes - 1),
  to: Int32Array.from({ length: boxes - 1 }, (_, i) => i + 1),
});

class FakeWorker extends EventTarget {
  static started = 0;
  ended = false;
  constructor(private readonly answer: (question: Question) => Answer | null) {
    super();
    FakeWorker.started++;
  }
  postMessage(question: Question): void {
    const answer = this.answer(question);
    if (answer) queueMicrotask(() => this.dispatchEvent(new MessageEvent("message", { data: answer })));
  }
  terminate(): void {
    this.ended = true;
  }
}

let Layouter: typeof LayouterOf;
const workers: FakeWorker[] = [];
const layouter = (answer: (question: Question) => Answer | null): LayouterOf =>
  new Layouter(async () => {
    const worker = new FakeWorker(answer);
    workers.push(worker);
    return worker as unknown as Worker;
  });
beforeEach(async () => {
  vi.resetModules(); // the worker is the page's: each test is a page of its own
  vi.useFakeTimers();
  ({ Layouter } = await import("../src/layout/layouter"));
  workers.length = 0;
  FakeWorker.started = 0;
});
afterEach(() => {
  vi.useRealTimers();
});

describe("the layouter", () => {
  test("takes the worker's answer, and starts one worker for all workbenches of a page", async () => {
    const answer = ({ id, lanes }: Question): Answer => ({ id, layouts: lanes.map(layered) });
    const [a, b] = [layouter(answer), layouter(answer)];
    expect((await a.layout([lane(3)])).note).toBe("");
    expect((await b.layout([lane(3)])).lanes[0]!.x).toHaveLength(3);
    expect(FakeWorker.started).toBe(1);
  });
  test("boxes that follow one another need no worker", async () => {
    const follow = { ...lane(3), from: Int32Array.of(0, 1), to: Int32Array.of(1, 2) };
    const { lanes, note } = await layouter(() => null).layout([follow]);
    expect([...lanes[0]!.y]).toEqual([0, 56, 112]);
    expect(note).toBe("");
    expect(FakeWorker.started).toBe(0);
  });
  test("asks for no lane that it has just had laid out, and gives each lane its own", async () => {
    const asked: number[][] = [];
    const answering = layouter(({ id, lanes }) => {
      asked.push(lanes.map(({ width }) => width.length));
      return { id, layouts: lanes.map(layered) };
    });
    await answering.layout([lane(3), lane(5)]);
    const { lanes } = await answering.layout([lane(4), lane(5)]);
    expect(lanes.map(({ x }) => x.length)).toEqual([4, 5]);
    expect((await answering.layout([lane(3), lane(5)])).lanes.map(({ x }) => x.length)).toEqual([3, 5]);
    expect(asked).toEqual([[3, 5], [4]]);
    const wider = { ...lane(4), width: new Float32Array(4).fill(90) };
    await answering.layout([wider, { ...lane(5), upward: true }]);
    expect(asked).toEqual([[3, 5], [4], [4, 5]]);
  });
  test("forgets what graphviz did not lay out", async () => {
    let answers = 0;
    const failing = layouter(({ id }) => (answers++, { id, error: "no memory" }));
    await failing.layout([lane(3)]);
    expect((await failing.layout([lane(3)])).note).toContain("no memory");
    expect(answers).toBe(2);
  });
  test("what graphviz rehearses has modules in modules and edges to route around boxes", () => {
    const dot = toDot(warmupGraph());
    expect(dot).toContain("splines=true");
    expect(dot).toMatch(/subgraph cluster_0 \{[^}]*subgraph cluster_1 \{/);
    expect(column(warmupGraph())).toBeNull();
    expect(dot).toMatch(/n0 -> n3\d;/);
  });
  test("is warm before it is asked", async () => {
    const idle = layouter(() => null);
    await vi.advanceTimersByTimeAsync(1000);
    expect(FakeWorker.started).toBe(1);
    idle.dispose();
  });
  test("falls back to the plain layout where there is no worker", async () => {
    const { lanes, note } = await new Layouter(() => Promise.reject(new Error("barred"))).layout([lane(3)]);
    expect(lanes[0]!.y[2]).toBeGreaterThan(lanes[0]!.y[0]!);
    expect(note).toContain("worker");
  });
  test("falls back where graphviz fails, and where it takes too long, and then starts another worker", async () => {
    expect((await layouter(({ id }) => ({ id, error: "no memory" })).layout([lane(3)])).note).toContain("no memory");
    workers[0]!.postMessage = () => {};
    const slow = layouter(() => null).layout([lane(3)]);
    await vi.advanceTimersByTimeAsync(3000);
    expect((await slow).note).toContain("too slow");
    expect(workers[0]!.ended).toBe(true);
    void layouter(() => null).layout([lane(3)]);
    await vi.advanceTimersByTimeAsync(10);
    expect(FakeWorker.started).toBe(2);
  });
  test("a layout that is cancelled ends its worker and gives no answer", async () => {
    const running = new AbortController();
    const asked = layouter(() => null).layout([lane(3)], running.signal);
    const refused = expect(asked).rejects.toThrow("cancelled");
    await vi.advanceTimersByTimeAsync(10);
    running.abort();
    await refused;
    expect(workers[0]!.ended).toBe(true);
  });
  test("large pictures are for the plain layout, and very large ones for the worker, never for the page", async () => {
    const asked: Question[] = [];
    const answering = layouter((question) => {
      asked.push(question);
      return { id: question.id, error: "broken" };
    });
    expect((await answering.layout([lane(2000)])).note).toContain("so many boxes");
    expect(asked).toHaveLength(0);
    await expect(answering.layout([lane(4000)])).rejects.toThrow("broken");
    expect(asked[0]!.plain).toBe(true);
  });
});
