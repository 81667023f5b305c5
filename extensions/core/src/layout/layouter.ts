// Chooses a layout, so that the reader never waits long. Boxes in one chain get a column. Pictures of a readable size
// go to graphviz in a worker. The plain layered layout is for larger pictures, for pages without a worker, and for
// cases in which graphviz takes too long or fails. One worker serves all workbenches of a page. It starts when the page
// is idle, so that it is warm on first use. To cancel a layout, the worker is ended and started again. Recent answers
// of graphviz are cached: opening a module of the forward does not change the backward, and closing it restores the
// previous layout.

import { column } from "./column";
import { layered } from "./layered";
import type { LaneInput, LaneLayout } from "./placed";

export const GRAPHVIZ_BOXES = 260; // larger pictures use the plain layout: to lead edges around more takes graphviz seconds
const BESIDE = 3000; // boxes: up to here the plain layout runs on the main thread
const PATIENCE_MS = 2500;
const WARM_AFTER_MS = 600;
const REMEMBERED = 12; // lanes

export type Question = { id: number; lanes: readonly LaneInput[]; plain: boolean };
export type Answer = { id: number; layouts?: LaneLayout[]; error?: string };

export interface Layouts {
  readonly lanes: readonly LaneLayout[];
  readonly note: string; // why the layout is not graphviz's; "" if it is
}

export class Cancelled extends Error {}

/** The worker and its pending requests. */
class Bench {
  worker: Worker | null = null; // once it has started
  private starting: Promise<Worker | null> | null = null;
  private next = 0;
  private readonly waiting = new Map<number, (answer: Answer) => void>();

  start(make: () => Promise<Worker>): Promise<Worker | null> {
    return (this.starting ??= make().then(
      (worker) => {
        worker.addEventListener("message", (event: MessageEvent<Answer>) =>
          this.waiting.get(event.data.id)?.(event.data),
        );
        worker.addEventListener("error", () => {
          this.fail("the worker failed");
          this.worker = null;
          this.starting = Promise.resolve(null);
        });
        return (this.worker = worker);
      },
      () => null,
    )); // e.g. a page whose content security policy forbids workers
  }

  ask(
    worker: Worker,
    lanes: readonly LaneInput[],
    plain: boolean,
    patience: number,
    signal?: AbortSignal,
  ): Promise<Answer> {
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
    void this.starting?.then((worker) => worker?.terminate());
    this.worker = this.starting = null;
    this.fail(why);
  }

  private fail(error: string): void {
    for (const [id, settle] of [...this.waiting]) settle({ id, error });
  }
}

/** A cache of the lanes that graphviz laid out last. */
class Memory {
  private readonly kept: (readonly [LaneInput, LaneLayout])[] = []; // the most recently used is last

  recall(lane: LaneInput): LaneLayout | undefined {
    const at = this.kept.findIndex(([known]) => same(known, lane));
    if (at < 0) return undefined;
    const [found] = this.kept.splice(at, 1);
    this.kept.push(found!);
    return found![1];
  }

  keep(lane: LaneInput, layout: LaneLayout): void {
    this.kept.push([lane, layout]);
    if (this.kept.length > REMEMBERED) this.kept.shift();
  }
}

function same(a: LaneInput, b: LaneInput): boolean {
  const parts = ["width", "height", "cluster", "parent", "titles", "from", "to"] as const;
  return (
    a.upward === b.upward &&
    parts.every((part) => a[part].length === b[part].length && a[part].every((value, i) => value === b[part][i]))
  );
}

const bench = new Bench();
const memory = new Memory();

export class Layouter {
  private readonly warming: ReturnType<typeof setTimeout>;

  constructor(private readonly startWorker: () => Promise<Worker>) {
    this.warming = setTimeout(() => this.warm(), WARM_AFTER_MS);
  }

  warm(): void {
    void bench.start(this.startWorker);
  }

  /** Raises Cancelled if `signal` aborts before there is an answer. */
  async layout(lanes: readonly LaneInput[], signal?: AbortSignal): Promise<Layouts> {
    const columns = lanes.flatMap((lane) => column(lane) ?? []);
    if (columns.length === lanes.length) return { lanes: columns, note: "" };
    const boxes = lanes.reduce((sum, lane) => sum + lane.width.length, 0);
    const large = boxes > GRAPHVIZ_BOXES;
    const why = large ? "plain layout: graphviz takes too long for so many boxes" : "";
    if (large && boxes <= BESIDE) return { lanes: lanes.map(layered), note: why };
    const known = large ? [] : lanes.map((lane) => memory.recall(lane));
    const asked = lanes.filter((_, i) => !known[i]);
    if (!asked.length) return { lanes: known as LaneLayout[], note: "" };
    const worker = bench.worker ?? (await bench.start(this.startWorker)); // a running worker gets it now
    if (signal?.aborted) throw new Cancelled("The layout was cancelled.");
    if (!worker)
      return {
        lanes: lanes.map(layered),
        note: why || "plain layout: graphviz needs a worker, which this page does not allow",
      };
    const answer = await bench.ask(worker, asked, large, large ? 60_000 : PATIENCE_MS, signal);
    if (answer.layouts) {
      const fresh = new Map(asked.map((lane, i) => [lane, answer.layouts![i]!]));
      if (!large) fresh.forEach((layout, lane) => memory.keep(lane, layout));
      return { lanes: lanes.map((lane, i) => known[i] ?? fresh.get(lane)!), note: why };
    }
    if (boxes > BESIDE)
      throw new Error(`The layout of ${boxes.toLocaleString("en-US")} boxes failed: ${answer.error ?? "no answer"}.`);
    return { lanes: lanes.map(layered), note: `plain layout: graphviz gave none (${answer.error ?? "no answer"})` };
  }

  dispose(): void {
    clearTimeout(this.warming);
  }
}
