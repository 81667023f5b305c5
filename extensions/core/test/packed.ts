// Msgpack as a tree of maps and lists, which a test may spoil, and back again.

import { Reader } from "../src/msgpack";
import { Float, type Wire } from "../src/wire";

class Tree extends Reader {
  whole(): Wire {
    const value = this.value();
    this.finish();
    return value;
  }
}

export function asTree(bytes: Uint8Array): Wire {
  return new Tree(bytes).whole();
}

/** Each length and each integer takes the longest form there is. */
export function packed(tree: Wire): Uint8Array<ArrayBuffer> {
  return Buffer.concat([...pieces(tree)]);
}

export function packedText(letters: string): Uint8Array {
  const text = Buffer.from(letters);
  return Buffer.concat([head(0xdb, text.length), text]);
}

function* pieces(value: Wire): Generator<Uint8Array> {
  if (value === null) yield Uint8Array.of(0xc0);
  else if (typeof value === "boolean") yield Uint8Array.of(value ? 0xc3 : 0xc2);
  else if (typeof value === "string") yield packedText(value);
  else if (value instanceof Float) yield eight(0xcb, (view) => view.setFloat64(1, value.value));
  else if (typeof value === "number" || typeof value === "bigint") yield integer(BigInt(value));
  else if (Array.isArray(value)) {
    yield head(0xdd, value.length);
    let bytes = new Uint8Array();
    for (const [i, part] of value.entries()) {
      if (!i || part !== value[i - 1]) bytes = packed(part); // a test may say the same very often
      yield bytes;
    }
  } else {
    yield head(0xdf, value.size);
    for (const [key, part] of value) yield* [...pieces(key), ...pieces(part)];
  }
}

function integer(value: bigint): Uint8Array {
  if (value >= 0n && value < 128n) return Uint8Array.of(Number(value)); // as arguments of nodes are
  return value < 0n
    ? eight(0xd3, (view) => view.setBigInt64(1, value))
    : eight(0xcf, (view) => view.setBigUint64(1, value));
}

function head(tag: number, size: number): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(5));
  bytes.setUint8(0, tag);
  bytes.setUint32(1, size);
  return new Uint8Array(bytes.buffer);
}

function eight(tag: number, write: (view: DataView) => void): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(9));
  bytes.setUint8(0, tag);
  write(bytes);
  return new Uint8Array(bytes.buffer);
}
