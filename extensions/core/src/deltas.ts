// A page stores its recording in a smaller form than a file, so that gzip compresses it well and the page opens sooner.
// aotviz/widgets/packing.py writes this form and marks it with "deltas"; files never use it. Long columns of graphs are
// differences (5, 6, 7 is 5, 1, 1). A node that reads only the node d places earlier has d as its arguments. A value
// that differs from the previous one only in its storage is that difference. All texts are joined by a separator.

import { MsgpackError } from "./msgpack";
import type { RecordingData, Wire } from "./wire";

const COLUMNS = ["name", "value", "sequence"] as const; // the same as in packing.py
const SEPARATOR = "\0";
const MOST_TEXTS = 1 << 24;
const NEAR = 128; // distances whose arguments are created once

/** Restores the columns and arguments of the file format. records.ts has already restored texts and values. */
export function addUp(data: RecordingData): void {
  for (const { graphs } of data.compilations) {
    for (const graph of graphs) {
      for (const name of COLUMNS) sum(graph[name]);
      read(graph.args);
    }
  }
}

/** Splits the joined texts. Raises MsgpackError if there are more than a page can hold. */
export function parted(text: string): string[] {
  const texts = text.split(SEPARATOR, MOST_TEXTS + 1);
  if (texts.length > MOST_TEXTS) throw new MsgpackError("it has too many texts");
  return texts;
}

function sum(column: number[]): void {
  let total = 0;
  for (let i = 0; i < column.length; i++) column[i] = total += column[i]!;
}

function read(args: Wire[]): void {
  const near: Wire[] = Array.from({ length: NEAR }, (_, distance) => [[distance]]);
  for (let i = 0; i < args.length; i++) {
    const distance = args[i];
    if (typeof distance === "number") args[i] = near[distance] ?? [[distance]];
  }
}
