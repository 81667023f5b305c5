// A page that holds a recording holds it smaller than a file does, so that gzip makes next to nothing of it and the page
// shows something sooner. aotviz/widgets/packing.py writes it so, and says so in "deltas"; files have none of it:
// long columns of graphs are differences (5, 6, 7 is 5, 1, 1); a node that only reads the one d places before has d for
// its arguments; a value that differs from the one before in nothing but its storage is that difference; and all texts
// are one, with a separator between any two.

import { MsgpackError } from "./msgpack";
import type { RecordingData, Wire } from "./wire";

const COLUMNS = ["name", "value", "sequence"] as const; // those of packing.py
const SEPARATOR = "\0";
const MOST_TEXTS = 1 << 24;
const STORAGE = 6; // its place in a ValueRecord
const NEAR = 128; // distances whose arguments are made once

/** The tree of a recording as a file has it. What has another shape is left for the check to refuse. */
export function withoutDeltas(tree: Wire): Wire {
  if (!(tree instanceof Map) || tree.get("deltas") !== true) return tree;
  const whole = new Map(tree);
  const strings = tree.get("strings");
  if (typeof strings === "string") whole.set("strings", parted(strings));
  for (const compilation of list(tree.get("compilations"))) {
    if (!(compilation instanceof Map)) continue;
    rows(list(compilation.get("values")));
    for (const graph of list(compilation.get("graphs"))) {
      if (!(graph instanceof Map)) continue;
      for (const name of COLUMNS) sum(list(graph.get(name)));
      read(list(graph.get("args")));
    }
  }
  return whole;
}

/** The same for a recording that was read without a tree, but for its texts and values. */
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

function list(value: Wire | undefined): Wire[] {
  return Array.isArray(value) ? (value as Wire[]) : [];
}

function sum(column: Wire[]): void {
  let total = 0;
  for (let i = 0; i < column.length; i++) {
    const step = column[i];
    if (typeof step !== "number") return;
    column[i] = total += step;
  }
}

function read(args: Wire[]): void {
  const near: Wire[] = Array.from({ length: NEAR }, (_, distance) => [[distance]]);
  for (let i = 0; i < args.length; i++) {
    const distance = args[i];
    if (typeof distance === "number") args[i] = near[distance] ?? [[distance]];
  }
}

function rows(values: Wire[]): void {
  for (let i = 1; i < values.length; i++) {
    const [before, step] = [values[i - 1], values[i]];
    if (typeof step !== "number" || !Array.isArray(before)) continue;
    const storage = before[STORAGE];
    if (typeof storage === "number") values[i] = [...before.slice(0, STORAGE), storage + step, ...before.slice(STORAGE + 1)];
  }
}
