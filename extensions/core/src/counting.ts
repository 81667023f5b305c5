// Counts what a recording holds without making any of it. A file of 100 MB takes a page a second to count and may
// take it minutes to read, so a large one is counted first: it opens, or the reader is told how large it is.

import { isList, isMap, isText, Reader } from "./msgpack";

/** Of a whole recording. */
export interface Counts {
  items: number; // of all lists and maps
  compilations: number;
  graphs: number;
  nodes: number; // of all graphs
}

const NUMBER_BYTES: Readonly<Record<number, number>> = {
  // after the first byte
  0xca: 4,
  0xcb: 8,
  0xcc: 1,
  0xcd: 2,
  0xce: 4,
  0xcf: 8,
  0xd0: 1,
  0xd1: 2,
  0xd2: 4,
  0xd3: 8,
};

/** Raises MsgpackError where the bytes end too early or have another shape. */
export function countsOf(bytes: Uint8Array): Counts {
  return new Counter(bytes).counts();
}

class Counter extends Reader {
  private readonly found: Counts = { items: 0, compilations: 0, graphs: 0, nodes: 0 };

  counts(): Counts {
    this.field("compilations", () =>
      this.each("compilations", () =>
        this.field("graphs", () => this.each("graphs", () => this.field("op", () => this.nodes()))),
      ),
    );
    this.finish();
    return this.found;
  }

  /** Passes over a map; `read` passes over the one field that is asked for. */
  private field(name: string, read: () => void): void {
    const size = this.count(this.mapSize());
    for (let i = 0; i < size; i++) {
      const key = this.value();
      if (key === name) read();
      else this.skip();
    }
  }

  private each(counted: "compilations" | "graphs", read: () => void): void {
    const size = this.count(this.listSize());
    this.found[counted] += size;
    for (let i = 0; i < size; i++) read();
  }

  /** A graph's column of operators has a letter for each node. */
  private nodes(): void {
    const size = this.textSize();
    this.found.nodes += size;
    this.take(size);
  }

  private skip(): void {
    for (let left = 1; left > 0; left--) left += this.pass();
  }

  /** Passes over the next value, but not over what is in it; how many values those are. */
  private pass(): number {
    const tag = this.peek();
    if (isMap(tag)) return 2 * this.count(this.mapSize());
    if (isList(tag)) return this.count(this.listSize());
    this.take(isText(tag) ? this.textSize() : 1 + (NUMBER_BYTES[tag] ?? 0));
    return 0;
  }

  private count(items: number): number {
    this.found.items += items;
    return items;
  }
}
