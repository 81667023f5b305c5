// Splits long work into steps. Between them the page can show the progress, scroll, and cancel the work.

export type Work<T> = Generator<number, T, void>; // yields the finished share after each step, from 0 to 1

const BREATH_MS = 30; // of work before the page gets a turn

export function atOnce<T>(work: Work<T>): T {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

/** Calls `told` with the finished share. Raises the signal's reason if it aborts before the end. */
export async function inSteps<T>(work: Work<T>, signal: AbortSignal, told: (share: number) => void): Promise<T> {
  for (;;) {
    await new Promise((done) => setTimeout(done));
    signal.throwIfAborted();
    for (const began = performance.now(); performance.now() - began < BREATH_MS;) {
      const step = work.next();
      if (step.done) return step.value;
      told(step.value);
    }
  }
}
