// Long work in steps, between which a page can show how far it is, be scrolled, and be told to stop.

export type Work<T> = Generator<number, T, void>; // after each step: the share that is done, from 0 to 1

const BREATH_MS = 30; // of work, before the page may do something else

export function atOnce<T>(work: Work<T>): T {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

/** `told` hears the share that is done. Raises the signal's reason where that comes before the end. */
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
