// Chooses a layout and never leaves the reader waiting: graphviz in a worker for pictures of a readable size; the
// plain layered one for larger pictures, where there is no worker, or when graphviz takes too long or fails.

import { fromDot, toDot } from "./dot";
import { layered } from "./layered";
import type { LaneInput, LaneLayout } from "./placed";

const LARGEST = 1800; // boxes
const PATIENCE_MS = 6000;

type Answer = { id: number; answers?: string[]; error?: string };

export class Layouter {
  private worker: Promise<Worker | null> | null = null;
  private next = 0;
  private readonly waiting = new Map<number, (answer: Answer) => void>();

  constructor(private readonly startWorker: () => Promise<Worker>) {}

  async layout(lanes: readonly LaneInput[]): Promise<LaneLayout[]> {
    const boxes = lanes.reduce((sum, lane) => sum + lane.boxes.length, 0);
    const worker = boxes <= LARGEST ? await (this.worker ??= this.start()) : null;
    if (!worker) return lanes.map(layered);
    const id = this.next++;
    const answer = await new Promise<Answer>((resolve) => {
      const timer = setTimeout(() => {
        resolve({ id, error: "too slow" });
        this.dispose();
      }, PATIENCE_MS);
      this.waiting.set(id, (result) => {
        clearTimeout(timer);
        resolve(result);
      });
      worker.postMessage({ id, dots: lanes.map(toDot) });
    });
    this.waiting.delete(id);
    const { answers } = answer;
    if (!answers) return lanes.map(layered);
    return lanes.map((lane, i) => fromDot(lane, answers[i]!));
  }

  dispose(): void {
    void this.worker?.then((worker) => worker?.terminate());
    this.worker = null;
  }

  private async start(): Promise<Worker | null> {
    try {
      const worker = await this.startWorker();
      worker.addEventListener("message", (event: MessageEvent<Answer>) => this.waiting.get(event.data.id)?.(event.data));
      worker.addEventListener("error", () => {
        for (const [id, settle] of this.waiting) settle({ id, error: "the worker failed" });
        this.worker = Promise.resolve(null);
      });
      return worker;
    } catch {
      return null; // e.g. a page whose policy bars workers
    }
  }
}
