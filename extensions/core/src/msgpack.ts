// Reads msgpack. The bytes are untrusted: every length is checked against the remaining bytes, so that a few
// hostile bytes cannot cause an allocation of gigabytes; nesting is bounded; maps become Map, so that a key such as
// "__proto__" is only a key. Integers beyond 2^53 become bigint and floats become Float, because the graph's arguments
// are shown as Python code and must read as they were (the 9223372036854775807 of a slice, 1.0).

import { Float, type Wire } from "./wire";

const MAX_DEPTH = 100;
export const MAX_ITEMS = 1 << 25; // of all lists and maps. A graph of a million nodes has 28 million
const SHORT = 40; // bytes: a shorter text is faster to decode letter by letter than with a TextDecoder
const utf8 = new TextDecoder("utf-8", { fatal: true });

export class MsgpackError extends Error {}

export class Reader {
  protected at = 0;
  protected depth = 0;
  private items = 0;
  private readonly view: DataView;

  constructor(private readonly bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** The share of the bytes that has been read, from 0 to 1. */
  protected get share(): number {
    return this.at / this.bytes.length;
  }

  protected finish(): void {
    if (this.at !== this.bytes.length) throw new MsgpackError(`${this.bytes.length - this.at} bytes too many`);
  }

  protected take(size: number): number {
    const start = this.at;
    if (start + size > this.bytes.length)
      throw new MsgpackError(`it ends in the middle, after ${this.bytes.length} bytes`);
    this.at = start + size;
    return start;
  }

  /** The first byte of the next value. */
  protected peek(): number {
    return this.bytes[this.at] ?? -1;
  }

  /** Skips the next bytes if they equal those from `start` to `end`; returns whether they do. */
  protected again(start: number, end: number): boolean {
    const { bytes, at } = this;
    const length = end - start;
    if (!length || at + length > bytes.length) return false;
    for (let i = 0; i < length; i++) if (bytes[at + i] !== bytes[start + i]) return false;
    this.at = at + length;
    return true;
  }

  protected value(): Wire {
    const tag = this.bytes[this.take(1)]!;
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.map(tag & 0x0f);
    if (tag < 0xa0) return this.array(tag & 0x0f);
    if (tag < 0xc0) return this.text(tag & 0x1f);
    if (tag >= 0xe0) return tag - 0x100;
    switch (tag) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xca:
        return new Float(this.view.getFloat32(this.take(4)));
      case 0xcb:
        return new Float(this.view.getFloat64(this.take(8)));
      case 0xcc:
        return this.view.getUint8(this.take(1));
      case 0xcd:
        return this.view.getUint16(this.take(2));
      case 0xce:
        return this.view.getUint32(this.take(4));
      case 0xcf:
        return narrowed(this.view.getBigUint64(this.take(8)));
      case 0xd0:
        return this.view.getInt8(this.take(1));
      case 0xd1:
        return this.view.getInt16(this.take(2));
      case 0xd2:
        return this.view.getInt32(this.take(4));
      case 0xd3:
        return narrowed(this.view.getBigInt64(this.take(8)));
      case 0xd9:
        return this.text(this.view.getUint8(this.take(1)));
      case 0xda:
        return this.text(this.view.getUint16(this.take(2)));
      case 0xdb:
        return this.text(this.view.getUint32(this.take(4)));
      case 0xdc:
        return this.array(this.view.getUint16(this.take(2)));
      case 0xdd:
        return this.array(this.view.getUint32(this.take(4)));
      case 0xde:
        return this.map(this.view.getUint16(this.take(2)));
      case 0xdf:
        return this.map(this.view.getUint32(this.take(4)));
      default:
        throw new MsgpackError(`byte 0x${tag.toString(16)} at ${this.at - 1} has no place in a recording`);
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

  protected enter(items: number): void {
    if (items > this.bytes.length - this.at) throw new MsgpackError(`a list at byte ${this.at} claims ${items} items`);
    this.items += items;
    if (this.items > MAX_ITEMS) throw new MsgpackError(`it claims more than ${MAX_ITEMS.toLocaleString("en")} items`);
    if (++this.depth > MAX_DEPTH) throw new MsgpackError(`lists are nested more than ${MAX_DEPTH} deep`);
  }

  protected leave(): void {
    this.depth--;
  }

  /** The number of items of the next list. Raises MsgpackError if the next value is no list. */
  protected listSize(): number {
    const tag = this.bytes[this.take(1)]!;
    if (tag >= 0x90 && tag < 0xa0) return tag & 0x0f;
    if (tag === 0xdc) return this.view.getUint16(this.take(2));
    if (tag === 0xdd) return this.view.getUint32(this.take(4));
    throw new MsgpackError(`byte ${this.at - 1} begins no list`);
  }

  /** The same for a map. */
  protected mapSize(): number {
    const tag = this.bytes[this.take(1)]!;
    if (tag >= 0x80 && tag < 0x90) return tag & 0x0f;
    if (tag === 0xde) return this.view.getUint16(this.take(2));
    if (tag === 0xdf) return this.view.getUint32(this.take(4));
    throw new MsgpackError(`byte ${this.at - 1} begins no map`);
  }

  /** The size of the next text, in bytes. */
  protected textSize(): number {
    const tag = this.bytes[this.take(1)]!;
    if (tag >= 0xa0 && tag < 0xc0) return tag & 0x1f;
    if (tag === 0xd9) return this.view.getUint8(this.take(1));
    if (tag === 0xda) return this.view.getUint16(this.take(2));
    if (tag === 0xdb) return this.view.getUint32(this.take(4));
    throw new MsgpackError(`byte ${this.at - 1} begins no text`);
  }

  /**
   * Adds `size` texts. ASCII texts are cut from one text that is decoded once. If the next value is not a text, `other`
   * is called with the number of texts before it.
   */
  protected texts(size: number, into: string[], other: (index: number) => never): void {
    const { bytes } = this;
    const first = this.at;
    const starts = new Int32Array(size);
    const ends = new Int32Array(size);
    let sum = 0;
    for (let i = 0; i < size; i++) {
      if (!isText(this.peek())) other(i);
      const length = this.textSize();
      starts[i] = this.take(length);
      ends[i] = this.at;
      sum += length;
    }
    const letters = new Uint8Array(sum);
    let used = 0;
    let all = 0; // the bits of all letters
    for (let i = 0; i < size; i++) for (let at = starts[i]!; at < ends[i]!; at++) all |= letters[used++] = bytes[at]!;
    if (all < 0x80) {
      const text = utf8.decode(letters);
      let from = 0;
      for (let i = 0; i < size; i++) into.push(text.slice(from, (from += ends[i]! - starts[i]!)));
    } else {
      this.at = first;
      for (let i = 0; i < size; i++) into.push(this.text(this.textSize()));
    }
  }

  /** Reads `size` numbers in one loop, which browsers optimise well. `other` replaces values that are not numbers. */
  protected numbers(size: number, other: (value: Wire, index: number) => number): number[] {
    const { bytes } = this;
    const out = new Array<number>(size);
    let { at } = this;
    for (let i = 0; i < size; i++) {
      const tag = bytes[at]!;
      if (tag < 0x80) {
        out[i] = tag;
        at++;
      } else if (tag === 0xcd && at + 2 < bytes.length) {
        out[i] = (bytes[at + 1]! << 8) | bytes[at + 2]!;
        at += 3;
      } else {
        this.at = at;
        const value = this.value();
        out[i] = typeof value === "number" ? value : other(value, i);
        at = this.at;
      }
    }
    this.at = at;
    return out;
  }

  private array(size: number): Wire[] {
    this.enter(size);
    // A list that grows has room for 17.
    const items = size === 1 ? [this.value()] : size === 2 ? [this.value(), this.value()] : [];
    while (items.length < size) items.push(this.value());
    this.leave();
    return items;
  }

  private map(size: number): Map<Wire, Wire> {
    this.enter(size);
    const items = new Map<Wire, Wire>();
    for (let i = 0; i < size; i++) {
      const key = this.value();
      items.set(key, this.value());
    }
    this.leave();
    return items;
  }
}

function narrowed(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** The type of a value, by its first byte. */
export function isText(tag: number): boolean {
  return (tag >= 0xa0 && tag < 0xc0) || (tag >= 0xd9 && tag <= 0xdb);
}

export function isList(tag: number): boolean {
  return (tag >= 0x90 && tag < 0xa0) || tag === 0xdc || tag === 0xdd;
}

export function isMap(tag: number): boolean {
  return (tag >= 0x80 && tag < 0x90) || tag === 0xde || tag === 0xdf;
}

export function isInt(tag: number): boolean {
  return (tag >= 0 && tag < 0x80) || tag >= 0xe0 || (tag >= 0xcc && tag <= 0xd3);
}
