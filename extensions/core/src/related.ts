// Finds the compilations that are related to one: earlier and later ones of the same function. It needs only the index,
// so the rail can name them before any is loaded.

import type { CompilationHead, RecordingIndex } from "./wire";

export interface Related {
  readonly position: number; // in the index
  readonly head: CompilationHead;
  readonly kind: "earlier" | "again" | "gradient" | "of";
}

const GRADIENT = "gradient of "; // the pipeline's name for a compilation of the gradient of a gradient

/**
 * Whether two compilations are of one function. Names repeat, and torch's ids repeat after a reset, so the function's
 * number decides if there is one.
 */
function family({ name, compile_id, frame, rank }: CompilationHead): string {
  const known = frame >= 0 ? [compile_id !== "", frame] : [/^(.*)\/\d+$/.exec(compile_id)?.[1]];
  const own = name.replace(/\/\d+\]$/, "]"); // within torch.compile our names are "step [0/1]"
  return JSON.stringify([rank, ...known, compile_id ? "" : own]);
}

/**
 * The previous and the next compilation of the same function, and the compilations of its gradients of gradients. For
 * the compilation of a gradient of a gradient, also the compilation that it belongs to.
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
