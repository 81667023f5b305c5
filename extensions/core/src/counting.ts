// Counts the contents of a recording without creating any records. Counting a file of 100 MB takes a second, but
// decoding it may take minutes. So a large recording is counted first. Then it opens, or a message says how large it
// is.

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

/** Raises MsgpackError if the bytes end too early or have another structure. */
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

  /** Skips a map; `read` skips the value of the one field that is needed. */
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

  /** Skips the head of the next value; returns how many values it contains. */
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
