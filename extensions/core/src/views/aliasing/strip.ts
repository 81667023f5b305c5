// Draws a storage as a strip for each tensor in it: the elements that the tensor covers, at their positions. A small
// storage is drawn element by element with each element's index in the tensor, so that a transposed view is
// recognisable.

import { svg } from "../../dom";
import { bytes } from "../../format";
import type { AliasTensor, StorageRecord } from "../../wire";
import { cellBytes, windowOf } from "./geometry";

const WIDTH = 320;
const HEIGHT = 18;
const THINNEST = 1.5; // pixels: narrower runs are drawn this wide

export function strip(storage: StorageRecord, tensor: AliasTensor, written: boolean): SVGSVGElement | null {
  const total = storage.nbytes;
  const size = cellBytes(storage);
  const window = total ? windowOf(tensor, size > 0) : null;
  if (!total || !window) return null;
  const scale = WIDTH / total;
  const drawing = svg(
    "svg",
    {
      class: `strip ${tensor.role}${written ? " written" : ""}`,
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label(tensor, window.exact),
    },
    svg("rect", { class: "ground", x: 0.5, y: 0.5, width: WIDTH - 1, height: HEIGHT - 1, rx: 2 }),
  );
  for (const { from, to } of window.runs) {
    drawing.append(
      svg("rect", {
        class: window.exact ? "run" : "run sparse",
        x: from * scale + 0.5,
        y: 0.5,
        width: Math.max(THINNEST, (to - from) * scale - 1),
        height: HEIGHT - 1,
        rx: size ? 1.5 : 2,
      }),
    );
  }
  return drawing;
}

/** The positions in a small storage, as numbers above the strip. */
export function numbered(storage: StorageRecord, tensor: AliasTensor): (number | null)[] {
  const size = cellBytes(storage);
  const window = size ? windowOf(tensor, true) : null;
  if (!window || !storage.nbytes) return [];
  const cells: (number | null)[] = Array.from({ length: storage.nbytes / size }, () => null);
  for (const { from, index } of window.runs) cells[from / size] = index;
  return cells;
}

function label(tensor: AliasTensor, exact: boolean): string {
  const window = windowOf(tensor, false);
  const first = window?.runs[0];
  const last = window?.runs.at(-1);
  if (!first || !last) return "no element";
  return `${bytes(first.from)} to ${bytes(last.to)} of the storage${exact && window!.runs.length === 1 ? "" : ", with gaps"}`;
}
