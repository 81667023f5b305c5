// Which compilations belong to one: those that its function led to before and after. Read off the index alone, so that
// the rail can name them before any is loaded.

import type { CompilationHead, RecordingIndex } from "./wire";

export interface Related {
  readonly position: number; // in the index
  readonly head: CompilationHead;
  readonly kind: "earlier" | "again" | "gradient" | "of";
}

const GRADIENT = "gradient of "; // how the pipeline names the program that a backward of the backward needs

/**
 * Of one function: names repeat, and torch's ids do after a reset, so the function's own number counts where there is
 * one.
 */
function family({ name, compile_id, frame, rank }: CompilationHead): string {
  const known = frame >= 0 ? [compile_id !== "", frame] : [/^(.*)\/\d+$/.exec(compile_id)?.[1]];
  const own = name.replace(/\/\d+\]$/, "]"); // ours within torch.compile are named "step [0/1]"
  return JSON.stringify([rank, ...known, compile_id ? "" : own]);
}

/**
 * The compilation before of the same function and the next one; the programs for gradients of gradients that it led
 * to; and of such a program, the compilation that led to it.
 */
export function related({ compilations }: RecordingIndex, position: number): Related[] {
  const self = compilations[position]!;
  const same = (head: CompilationHead): boolean => family(head) === family(self);
  const found: Related[] = [];
  const put = (kind: Related["kind"], at: number): void => {
    if (at >= 0) found.push({ position: at, head: compilations[at]!, kind });
  };
  if (self.name.startsWith(GRADIENT)) {
    const origin = self.name.slice(GRADIENT.length);
    put(
      "of",
      compilations.findLastIndex((head, i) => i < position && head.rank === self.rank && head.name === origin),
    );
  }
  put(
    "earlier",
    compilations.findLastIndex((head, i) => i < position && same(head)),
  );
  const next = compilations.findIndex((head, i) => i > position && same(head));
  compilations.forEach((head, i) => {
    const mine = i > position && (next < 0 || i < next) && head.rank === self.rank;
    if (mine && head.name === GRADIENT + self.name) put("gradient", i);
  });
  put("again", next);
  return found;
}
