// Reads msgpack. Written for bytes from a stranger: every length is checked against what is left, so that a few
// hostile bytes can't ask for gigabytes; nesting is bounded; maps become Map, so that a key such as "__proto__" is
// only a key. Integers beyond 2^53 become bigint and floats become Float, because the graph's arguments are shown
// as Python code and must read as they were (slice(..., 9223372036854775807), 1.0).

import { Float, type Wire } from "./wire";

const MAX_DEPTH = 100;
const MAX_ITEMS = 1 << 24; // of all lists and maps: some 50 graphs of 20,000 nodes each have a tenth of that
const SHORT = 40; // bytes of a text that is sooner read letter by letter than by a TextDecoder
const utf8 = new TextDecoder("utf-8", { fatal: true });

export class MsgpackError extends Error {}

class Reader {
  private at = 0;
  private depth = 0;
  private items = 0;
  private readonly view: DataView;

  constructor(private readonly bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  whole(): Wire {
    const value = this.value();
    if (this.at !== this.bytes.length) throw new MsgpackError(`${this.bytes.length - this.at} bytes too many`);
    return value;
  }

  private take(size: number): number {
    const start = this.at;
    if (start + size > this.bytes.length) throw new MsgpackError(`it ends in the middle, after ${this.bytes.length} bytes`);
    this.at = start + size;
    return start;
  }

  private value(): Wire {
    const tag = this.bytes[this.take(1)]!;
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.map(tag & 0x0f);
    if (tag < 0xa0) return this.array(tag & 0x0f);
    if (tag < 0xc0) return this.text(tag & 0x1f);
    if (tag >= 0xe0) return tag - 0x100;
    switch (tag) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xca: return new Float(this.view.getFloat32(this.take(4)));
      case 0xcb: return new Float(this.view.getFloat64(this.take(8)));
      case 0xcc: return this.view.getUint8(this.take(1));
      case 0xcd: return this.view.getUint16(this.take(2));
      case 0xce: return this.view.getUint32(this.take(4));
      case 0xcf: return narrowed(this.view.getBigUint64(this.take(8)));
      case 0xd0: return this.view.getInt8(this.take(1));
      case 0xd1: return this.view.getInt16(this.take(2));
      case 0xd2: return this.view.getInt32(this.take(4));
      case 0xd3: return narrowed(this.view.getBigInt64(this.take(8)));
      case 0xd9: return this.text(this.view.getUint8(this.take(1)));
      case 0xda: return this.text(this.view.getUint16(this.take(2)));
      case 0xdb: return this.text(this.view.getUint32(this.take(4)));
      case 0xdc: return this.array(this.view.getUint16(this.take(2)));
      case 0xdd: return this.array(this.view.getUint32(this.take(4)));
      case 0xde: return this.map(this.view.getUint16(this.take(2)));
      case 0xdf: return this.map(this.view.getUint32(this.take(4)));
      default: throw new MsgpackError(`byte 0x${tag.toString(16)} at ${this.at - 1} has no place in a recording`);
    }
  }

  private text(size: number): string {
    const start = this.take(size);
    if (size <= SHORT) {
      let letters = "";
      let at = start;
      for (; at < start + size && this.bytes[at]! < 0x80; at++) letters += String.fromCharCode(this.bytes[at]!);
      if (at === start + size) return letters;
    }
    try {
      return utf8.decode(this.bytes.subarray(start, start + size));
    } catch {
      throw new MsgpackError(`the text at byte ${start} is not UTF-8`);
    }
  }

  private enter(items: number): void {
    if (items > this.bytes.length - this.at) throw new MsgpackError(`a list at byte ${this.at} claims ${items} items`);
    this.items += items;
    if (this.items > MAX_ITEMS) throw new MsgpackError(`it claims more than ${MAX_ITEMS.toLocaleString("en")} items`);
    if (++this.depth > MAX_DEPTH) throw new MsgpackError(`lists are nested more than ${MAX_DEPTH} deep`);
  }

  private array(size: number): Wire[] {
    this.enter(size);
    const items: Wire[] = [];
    for (let i = 0; i < size; i++) items.push(this.value());
    this.depth--;
    return items;
  }

  private map(size: number): Map<Wire, Wire> {
    this.enter(size);
    const items = new Map<Wire, Wire>();
    for (let i = 0; i < size; i++) {
      const key = this.value();
      items.set(key, this.value());
    }
    this.depth--;
    return items;
  }
}

function narrowed(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

export function decodeMsgpack(bytes: Uint8Array): Wire {
  return new Reader(bytes).whole();
}
