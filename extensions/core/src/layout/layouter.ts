// Chooses a layout and never leaves the reader waiting: none where boxes follow one another in a column; graphviz in a
// worker for pictures of a readable size; the plain layered one for larger pictures, where there is no worker, or when graphviz takes too long or fails. One
// worker serves all workbenches of a page. It starts when the page has nothing else to do, so that it is warm when it
// is needed; a layout that is no longer wanted ends with the worker, which starts anew.

import { column } from "./column";
import { layered } from "./layered";
import type { LaneInput, LaneLayout } from "./placed";

export const GRAPHVIZ_BOXES = 600; // more are laid out by the plain layout
const BESIDE = 3000; // boxes up to which the plain layout runs where it is called
const PATIENCE_MS = 2500;
const WARM_AFTER_MS = 600;

export type Question = { id: number; lanes: readonly LaneInput[]; plain: boolean };
export type Answer = { id: number; layouts?: LaneLayout[]; error?: string };

export interface Layouts {
  readonly lanes: readonly LaneLayout[];
  readonly note: string; // why it is not graphviz's, "" where it is
}

export class Cancelled extends Error {}

/** The worker, and who waits for its answers. */
class Bench {
  private worker: Promise<Worker | null> | null = null;
  private next = 0;
  private readonly waiting = new Map<number, (answer: Answer) => void>();

  start(make: () => Promise<Worker>): Promise<Worker | null> {
    return (this.worker ??= make().then((worker) => {
      worker.addEventListener("message", (event: MessageEvent<Answer>) => this.waiting.get(event.data.id)?.(event.data));
      worker.addEventListener("error", () => {
        this.fail("the worker failed");
        this.worker = Promise.resolve(null);
      });
      return worker;
    }, () => null)); // e.g. a page whose policy bars workers
  }

  ask(worker: Worker, lanes: readonly LaneInput[], plain: boolean, patience: number, signal?: AbortSignal): Promise<Answer> {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      const stop = (): void => {
        reject(new Cancelled("The layout was cancelled."));
        this.restart("cancelled");
      };
      const timer = setTimeout(() => this.restart("too slow"), patience);
      this.waiting.set(id, (answer) => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", stop);
        this.waiting.delete(id);
        resolve(answer);
      });
      signal?.addEventListener("abort", stop);
      worker.postMessage({ id, lanes, plain } satisfies Question);
    });
  }

  private restart(why: string): void {
    void this.worker?.then((worker) => worker?.terminate());
    this.worker = null;
    this.fail(why);
  }

  private fail(error: string): void {
    for (const [id, settle] of [...this.waiting]) settle({ id, error });
  }
}

const bench = new Bench();

export class Layouter {
  private readonly warming: ReturnType<typeof setTimeout>;

  constructor(private readonly startWorker: () => Promise<Worker>) {
    this.warming = setTimeout(() => this.warm(), WARM_AFTER_MS);
  }

  warm(): void {
    void bench.start(this.startWorker);
  }

  /** Raises Cancelled when `signal` says so before there is an answer. */
  async layout(lanes: readonly LaneInput[], signal?: AbortSignal): Promise<Layouts> {
    const columns = lanes.flatMap((lane) => column(lane) ?? []);
    if (columns.length === lanes.length) return { lanes: columns, note: "" };
    const boxes = lanes.reduce((sum, lane) => sum + lane.width.length, 0);
    const large = boxes > GRAPHVIZ_BOXES;
    const why = large ? "plain layout: too many boxes to route edges around them" : "";
    if (large && boxes <= BESIDE) return { lanes: lanes.map(layered), note: why };
    const worker = await bench.start(this.startWorker);
    if (signal?.aborted) throw new Cancelled("The layout was cancelled.");
    if (!worker) return { lanes: lanes.map(layered), note: why || "plain layout: graphviz needs a worker, which this page does not allow" };
    const answer = await bench.ask(worker, lanes, large, large ? 60_000 : PATIENCE_MS, signal);
    if (answer.layouts) return { lanes: answer.layouts, note: why };
    if (boxes > BESIDE) throw new Error(`The layout of ${boxes.toLocaleString("en-US")} boxes failed: ${answer.error ?? "no answer"}.`);
    return { lanes: lanes.map(layered), note: `plain layout: graphviz gave none (${answer.error ?? "no answer"})` };
  }

  dispose(): void {
    clearTimeout(this.warming);
  }
}
