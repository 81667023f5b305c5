// Keeps the page up to date with a running process. A notice of news leads to one question, and only one question is
// open at a time. There is a pause between two questions, longer if answers are slow, so that the questions do not slow
// down a kernel that compiles.

const LEAST_PAUSE_MS = 250;
const PAUSE = 4; // times what the last question took

/**
 * Call `notice` when there is more; `refresh` asks for it. After a failure, the next notice asks again.
 */
export function following(refresh: () => Promise<unknown>): { notice(): void; stop(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asking = false;
  let more = false;
  let free = 0; // time from which the next question is allowed
  let stopped = false;
  const ask = async (): Promise<void> => {
    timer = undefined;
    [asking, more] = [true, false];
    const began = performance.now();
    try {
      await refresh();
    } catch (error) {
      console.debug("aotviz: the recording could not be read again", error);
    }
    const now = performance.now();
    free = now + Math.max(LEAST_PAUSE_MS, PAUSE * (now - began));
    asking = false;
    if (more) plan();
  };
  const plan = (): void => {
    if (stopped || timer !== undefined) return;
    timer = setTimeout(() => void ask(), Math.max(0, free - performance.now()));
  };
  return {
    notice() {
      if (asking) more = true;
      else plan();
    },
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
