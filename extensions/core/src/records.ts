// Reads msgpack directly into the records of the SCHEMA, without a tree of maps and lists in between. The first value
// that does not match the schema raises an Unexpected. It collects its place in the recording as it propagates, so that
// valid data costs no time for places.

import { atOnce, type Work } from "./chunked_work";
import { parted } from "./deltas";
import { isInt, isList, isMap, isText, Reader } from "./msgpack";
import { Float, SCHEMA, type Schema, type ValueRecord, type Wire } from "./wire";

const MANY = 64; // texts of a list that are decoded together

type Fields = (typeof SCHEMA)[string]["fields"];

/** A value does not match the schema. */
export class Unexpected extends Error {
  private place = "";

  constructor(
    private readonly expected: string,
    private readonly got: string,
  ) {
    super();
  }

  /** The same error in a part of the record. `step` leads to the part, e.g. ".name" or "[2]". */
  in(step: string): this {
    this.place = step + this.place;
    return this;
  }

  /** The error as a sentence about a record called `name`. */
  said(name: string): string {
    return `${name}${this.place} should be ${this.expected}, but is ${this.got}.`;
  }
}

/**
 * The last record of a name, and the bytes of each field's last value: the same bytes give the same value.
 */
interface Last {
  record: Record<string, unknown>;
  readonly fields: readonly { start: number; end: number; value: unknown }[];
}

/** Called for each field of the outermost record, including fields that the schema does not know. */
export type Heard = (field: Wire, value: unknown) => void;

export class RecordReader extends Reader {
  /** Whether it has texts or values in the form of a page (deltas.ts). */
  packed = false;
  private readonly last = new Map<string, Last>(); // of records that are written by position

  constructor(
    bytes: Uint8Array,
    private readonly heard?: Heard,
  ) {
    super(bytes);
  }

  /**
   * Reads all bytes as one record, step by step: the columns of a large graph one after the other. Raises Unexpected
   * and MsgpackError.
   */
  *whole(name: string): Work<unknown> {
    const record = yield* this.byName(name);
    this.finish();
    return record;
  }

  private *inSteps(schema: Schema): Work<unknown> {
    let value: unknown;
    if (isNamed(schema)) value = yield* this.byName(schema[1] as string);
    else if (schema[0] === "list" && isNamed(schema[1] as Schema)) {
      const size = this.listOf(schema);
      const out: unknown[] = [];
      for (let i = 0; i < size; i++) {
        try {
          out.push(yield* this.inSteps(schema[1] as Schema));
        } catch (error) {
          throw within(error, `[${i}]`);
        }
      }
      this.leave();
      value = out;
    } else value = this.read(schema);
    yield this.share;
    return value;
  }

  private read(schema: Schema): unknown {
    if (typeof schema === "string") return this.leaf(schema);
    switch (schema[0]) {
      case "list":
        return this.list(schema);
      case "map":
        return this.entries(schema[1], schema[2]);
      case "record":
        return isNamed(schema) ? atOnce(this.byName(schema[1])) : this.byPosition(schema);
      case "or":
        return this.either(schema);
    }
  }

  private item(schema: Schema, index: number): unknown {
    try {
      return this.read(schema);
    } catch (error) {
      throw within(error, `[${index}]`);
    }
  }

  private leaf(schema: string): unknown {
    const value = this.value();
    switch (schema) {
      case "int":
        if (typeof value === "number") return value;
        if (typeof value === "bigint") return Number(value);
        break;
      case "float":
        if (typeof value === "number") return value;
        if (value instanceof Float) return value.value;
        break;
      case "str":
        if (typeof value === "string") return value;
        break;
      case "bool":
        if (typeof value === "boolean") return value;
        break;
      case "none":
        if (value === null) return value;
        break;
      default:
        return value;
    }
    throw new Unexpected(inWords(schema), shown(value));
  }

  private list(schema: Schema): unknown[] {
    const size = this.listOf(schema);
    const out = this.listed(schema[1] as Schema, size);
    this.leave();
    return out;
  }

  private listed(item: Schema, size: number): unknown[] {
    if (item[1] === "ValueRecord") return this.values(item, size);
    if (size === 1) return [this.item(item, 0)]; // a list that grows has room for 17
    if (size === 2) return [this.item(item, 0), this.item(item, 1)];
    if (item === "int") return this.numbers(size, notInt);
    if (item === "any") return this.anything(size);
    const out: unknown[] = [];
    if (item === "str" && size > MANY) this.texts(size, out as string[], (i) => this.item(item, i) as never);
    else for (let i = 0; i < size; i++) out.push(this.item(item, i));
    return out;
  }

  /** The arguments of nodes. The same bytes as the previous node's give the same object; this is the usual case. */
  private anything(size: number): unknown[] {
    const out = new Array<unknown>(size);
    let [start, end]: [number, number] = [0, 0];
    let last: unknown;
    for (let i = 0; i < size; i++) {
      if (this.peek() < 0x80) {
        // a number, or the end
        out[i] = this.value();
        continue;
      }
      if (!this.again(start, end)) {
        start = this.at;
        last = this.value();
        end = this.at;
      }
      out[i] = last;
    }
    return out;
  }

  private entries(key: Schema, part: Schema): Map<unknown, unknown> {
    if (!isMap(this.peek())) throw this.unexpected("a map");
    const size = this.mapSize();
    this.enter(size);
    const out = new Map<unknown, unknown>();
    for (let i = 0; i < size; i++) {
      let step = " (one of its keys)";
      try {
        const name = this.read(key);
        step = `.${String(name)}`;
        out.set(name, this.read(part));
      } catch (error) {
        throw within(error, step);
      }
    }
    this.leave();
    return out;
  }

  /** One of several, told apart by their first byte. */
  private either(schema: Schema): unknown {
    const tag = this.peek();
    const schemas = schema.slice(1) as Schema[];
    const found = schemas.find((one) => begins(tag, one));
    if (found === undefined) throw this.unexpected(inWords(schema));
    return this.read(found);
  }

  /** A record that is written without field names, as small and frequent records are. */
  private byPosition(schema: Schema): Record<string, unknown> {
    const name = schema[1] as string;
    const { fields } = SCHEMA[name]!;
    const size = this.listOf(schema);
    // an earlier version wrote fewer
    if (size > fields.length || (size < fields.length && fields[size]![2] === undefined))
      throw new Unexpected(`${fields.length} fields`, String(size));
    let last = this.last.get(name);
    if (!last)
      this.last.set(name, (last = { record: {}, fields: fields.map(() => ({ start: 0, end: 0, value: undefined })) }));
    const out = { ...last.record }; // a copy is faster than a new record, field by field
    for (let i = 0; i < size; i++) {
      const before = last.fields[i]!;
      const [field, part] = fields[i]!;
      if (!this.again(before.start, before.end)) {
        before.start = this.at;
        try {
          before.value = this.read(part);
        } catch (error) {
          throw within(error, `.${field}`);
        }
        before.end = this.at;
      }
      out[field] = before.value;
    }
    for (let i = size; i < fields.length; i++) out[fields[i]![0]] = fields[i]![2];
    last.record = out;
    this.leave();
    return out;
  }

  /** Values. In a page, a number is the previous value with its storage increased by that number. */
  private values(schema: Schema, size: number): unknown[] {
    const out = new Array<unknown>(size);
    let before: ValueRecord | null = null;
    for (let i = 0; i < size; i++) {
      const step: Wire = before && isInt(this.peek()) ? this.value() : null;
      if (before && typeof step === "number") {
        before = anotherStorage(before, step);
        this.packed = true;
      } else before = this.item(schema, i) as ValueRecord;
      out[i] = before;
    }
    return out;
  }

  /** The texts of a recording: a list, or one joined text in a page. */
  private strings(schema: Schema): unknown {
    if (!isText(this.peek())) return this.read(schema);
    this.packed = true;
    return parted(this.value() as string);
  }

  /** A record that is written with field names, as large records are. */
  private *byName(name: string): Work<Record<string, unknown>> {
    if (!isMap(this.peek())) throw this.unexpected(inWords(["record", name]));
    const { fields } = SCHEMA[name]!;
    const outermost = this.depth === 0;
    const read = new Map<string, unknown>();
    const size = this.mapSize();
    this.enter(size);
    for (let left = size; left > 0; left--) {
      const key = this.value();
      const field = fieldOf(fields, key, read.size);
      let value: unknown;
      if (!field) value = this.value();
      else {
        try {
          value = outermost && key === "strings" ? this.strings(field[1]) : yield* this.inSteps(field[1]);
        } catch (error) {
          throw within(error, `.${field[0]}`);
        }
        read.set(field[0], value);
      }
      if (outermost) this.heard?.(key, value);
    }
    this.leave();
    const out: Record<string, unknown> = {};
    for (const [field, schema, absent] of fields) {
      if (!read.has(field) && absent === undefined) throw new Unexpected(inWords(schema), "nothing").in(`.${field}`);
      out[field] = read.has(field) ? read.get(field) : schema[0] === "map" ? new Map() : absent;
    }
    return out;
  }

  /** Enters the next list and returns its length. Raises Unexpected if the next value is no list. */
  private listOf(schema: Schema): number {
    if (!isList(this.peek())) throw this.unexpected(inWords(schema));
    const size = this.listSize();
    this.enter(size);
    return size;
  }

  /** The error for a next value of the wrong type. */
  private unexpected(expected: string): Unexpected {
    return new Unexpected(expected, shown(this.value()));
  }
}

function within(error: unknown, step: string): unknown {
  return error instanceof Unexpected ? error.in(step) : error;
}

function notInt(value: Wire, index: number): number {
  if (typeof value === "bigint") return Number(value);
  throw new Unexpected(inWords("int"), shown(value)).in(`[${index}]`);
}

function inWords(schema: Schema): string {
  if (typeof schema === "string")
    return (
      { str: "text", int: "an integer", bool: "true or false", float: "a number", none: "None" }[schema] ?? "something"
    );
  if (schema[0] === "or") return (schema.slice(1) as Schema[]).map(inWords).join(" or ");
  const noun = schema[0] === "record" ? schema[1] : schema[0];
  return `${/^[AEIOU]/.test(noun) ? "an" : "a"} ${noun}`;
}

function shown(value: Wire): string {
  if (value === null) return "None";
  if (Array.isArray(value)) return "a list";
  return value instanceof Map ? "a map" : String(value instanceof Float ? value.value : value).slice(0, 40);
}

/** Usually the field after those read; undefined if the schema has no such field. */
function fieldOf(fields: Fields, key: Wire, next: number): Fields[number] | undefined {
  return fields[next]?.[0] === key ? fields[next] : fields.find(([name]) => name === key);
}

function isNamed(schema: Schema): boolean {
  return schema[0] === "record" && !SCHEMA[schema[1] as string]!.array;
}

/** Created field by field, which is faster than changing a copy. */
function anotherStorage(
  { kind, dtype, shape, stride, offset, device, storage, requires_grad, parts, text }: ValueRecord,
  step: number,
): ValueRecord {
  return { kind, dtype, shape, stride, offset, device, storage: storage + step, requires_grad, parts, text };
}

/** Whether a value whose first byte is `tag` can match the schema. */
function begins(tag: number, schema: Schema): boolean {
  if (typeof schema !== "string") {
    if (schema[0] === "or") return schema.slice(1).some((one) => begins(tag, one as Schema));
    return schema[0] === "list" || (schema[0] === "record" && !isNamed(schema)) ? isList(tag) : isMap(tag);
  }
  switch (schema) {
    case "str":
      return isText(tag);
    case "int":
      return isInt(tag);
    case "float":
      return isInt(tag) || tag === 0xca || tag === 0xcb;
    case "bool":
      return tag === 0xc2 || tag === 0xc3;
    case "none":
      return tag === 0xc0;
    default:
      return true;
  }
}
