// A page that holds a recording holds it smaller than a file does, so that gzip makes next to nothing of it and the
// page shows something sooner. aotviz/widgets/packing.py writes it so, and says so in "deltas"; files have none of it:
// long columns of graphs are differences (5, 6, 7 is 5, 1, 1); a node that only reads the one d places before has d for
// its arguments; a value that differs from the one before in nothing but its storage is that difference; and all texts
// are one, with a separator between any two.

import { MsgpackError } from "./msgpack";
import type { RecordingData, Wire } from "./wire";

const COLUMNS = ["name", "value", "sequence"] as const; // those of packing.py
const SEPARATOR = "\0";
const MOST_TEXTS = 1 << 24;
const NEAR = 128; // distances whose arguments are made once

/** Makes the columns and arguments those of a file. Texts and values became so when they were read (records.ts). */
export function addUp(data: RecordingData): void {
  for (const { graphs } of data.compilations) {
    for (const graph of graphs) {
      for (const name of COLUMNS) sum(graph[name]);
      read(graph.args);
    }
  }
}

/** The texts of one that has all. Raises MsgpackError where they are more than a page can hold. */
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
