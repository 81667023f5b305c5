// Keeps what is shown up to date with a process that goes on: a notice that there is more leads to one question, and
// never to two at a time. Between two questions there is a pause, longer where answers take long, so that a kernel that
// compiles has its time for itself.

const LEAST_PAUSE_MS = 250;
const PAUSE = 4; // times what the last question took

/**
 * `notice` is to be called when there is more; `refresh` asks for it. What fails is asked for again at the next notice.
 */
export function following(refresh: () => Promise<unknown>): { notice(): void; stop(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asking = false;
  let more = false;
  let free = 0; // when the next question may be asked
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
