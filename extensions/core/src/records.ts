// Reads msgpack straight into the records of the SCHEMA, with no tree of maps and lists in between: a large recording
// opens in half the time. At the first thing that is not as the schema says it gives up; decode.ts then reads the tree
// and says what is wrong and where.

import type { Work } from "./breath";
import { parted } from "./deltas";
import { Reader } from "./msgpack";
import { Float, SCHEMA, type Schema, type ValueRecord, type Wire } from "./wire";

const MANY = 64; // texts of a list that are decoded together

type Fields = (typeof SCHEMA)[string]["fields"];

/** What was read is not what the schema says, or only in a way that the reader of trees knows. */
export class Unexpected extends Error {}

/** The last record of a name, and where the last value of each field stood: the same bytes again are the same value again. */
interface Last {
  record: Record<string, unknown>;
  readonly fields: readonly { start: number; end: number; value: unknown }[];
}

export class RecordReader extends Reader {
  /** Fields of the outermost record that the schema does not know. */
  readonly others = new Map<Wire, Wire>();
  /** Whether it holds texts or values as only a page may (deltas.ts). */
  packed = false;
  private readonly last = new Map<string, Last>(); // of records that are written by position

  /** The whole of the bytes as a record. Raises Unexpected, MsgpackError. */
  wholeRecord(name: string): unknown {
    const record = this.record(name);
    this.finish();
    return record;
  }

  /** The same step by step: the columns of a large graph one after the other. */
  *wholeRecordInSteps(name: string): Work<unknown> {
    const record = yield* this.inSteps(["record", name]);
    this.finish();
    return record;
  }

  private *inSteps(schema: Schema): Work<unknown> {
    let value: unknown;
    if (isNamed(schema)) {
      const { fields } = SCHEMA[schema[1] as string]!;
      const read = new Map<string, unknown>();
      for (let left = this.begin(); left > 0; left--) {
        const field = this.fieldOf(fields, read.size);
        if (field) read.set(field[0], this.isStrings(field[0]) ? this.strings(field[1]) : yield* this.inSteps(field[1]));
      }
      value = this.end(fields, read);
    } else if (schema[0] === "list" && isNamed(schema[1] as Schema)) {
      const size = this.listSize();
      this.enter(size);
      const out: unknown[] = [];
      for (let i = 0; i < size; i++) out.push(yield* this.inSteps(schema[1] as Schema));
      this.leave();
      value = out;
    } else value = this.read(schema);
    yield this.share;
    return value;
  }

  private read(schema: Schema): unknown {
    if (typeof schema === "string") return this.leaf(schema);
    switch (schema[0]) {
      case "list": return this.list(schema[1]);
      case "map": return this.entries(schema[1], schema[2]);
      case "record": return this.record(schema[1]);
      case "or": return this.either(schema.slice(1) as Schema[]);
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
      default: return value;
    }
    throw new Unexpected(schema);
  }

  private list(item: Schema): unknown[] {
    const size = this.listSize();
    this.enter(size);
    const out = this.listed(item, size);
    this.leave();
    return out;
  }

  private listed(item: Schema, size: number): unknown[] {
    if (item[1] === "ValueRecord") return this.values(size);
    if (size === 1) return [this.read(item)]; // a list that grows has room for 17
    if (size === 2) return [this.read(item), this.read(item)];
    if (item === "int") return this.column(size);
    if (item === "any") return this.anything(size);
    const out: unknown[] = [];
    if (item === "str" && size > MANY) this.texts(size, out as string[]);
    else for (let i = 0; i < size; i++) out.push(this.read(item));
    return out;
  }

  private column(size: number): number[] {
    const numbers = this.numbers(size);
    if (!numbers) throw new Unexpected("int");
    return numbers;
  }

  /** The arguments of nodes. What is the same bytes as the one before is that one: most nodes read the node before. */
  private anything(size: number): unknown[] {
    const out = new Array<unknown>(size);
    let [start, end]: [number, number] = [0, 0];
    let last: unknown;
    for (let i = 0; i < size; i++) {
      if (this.peek() < 0x80) { // a number, or the end
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
    const size = this.mapSize();
    this.enter(size);
    const out = new Map<unknown, unknown>();
    for (let i = 0; i < size; i++) {
      const name = this.read(key);
      out.set(name, this.read(part));
    }
    this.leave();
    return out;
  }

  /** One of several, told apart by their first byte. */
  private either(schemas: readonly Schema[]): unknown {
    const tag = this.peek();
    const schema = schemas.find((one) => begins(tag, one));
    if (schema === undefined) throw new Unexpected("or");
    return this.read(schema);
  }

  private record(name: string): unknown {
    const { array, fields } = SCHEMA[name]!;
    return array ? this.byPosition(name, fields) : this.byName(fields);
  }

  private byPosition(name: string, fields: Fields): Record<string, unknown> {
    let last = this.last.get(name);
    const size = this.listSize();
    if (size !== fields.length) throw new Unexpected(name);
    this.enter(size);
    if (!last) this.last.set(name, (last = { record: {}, fields: fields.map(() => ({ start: 0, end: 0, value: undefined })) }));
    const out = { ...last.record }; // a copy is sooner made than a record field by field
    for (let i = 0; i < size; i++) {
      const before = last.fields[i]!;
      const [field, schema] = fields[i]!;
      if (!this.again(before.start, before.end)) {
        before.start = this.at;
        before.value = this.read(schema);
        before.end = this.at;
      }
      out[field] = before.value;
    }
    last.record = out;
    this.leave();
    return out;
  }

  /** Values. In a page, a number stands for the value before in another storage, so many on. */
  private values(size: number): unknown[] {
    const { fields } = SCHEMA.ValueRecord!;
    const out = new Array<unknown>(size);
    let before: ValueRecord | null = null;
    for (let i = 0; i < size; i++) {
      if (before && isInt(this.peek())) {
        before = anotherStorage(before, this.value());
        this.packed = true;
      } else before = this.byPosition("ValueRecord", fields) as unknown as ValueRecord;
      out[i] = before;
    }
    return out;
  }

  /** The texts of a recording: a list, or in a page one text. */
  private strings(schema: Schema): unknown {
    if (!begins(this.peek(), "str")) return this.read(schema);
    this.packed = true;
    return parted(this.value() as string);
  }

  private byName(fields: Fields): Record<string, unknown> {
    const read = new Map<string, unknown>();
    for (let left = this.begin(); left > 0; left--) {
      const field = this.fieldOf(fields, read.size);
      if (field) read.set(field[0], this.isStrings(field[0]) ? this.strings(field[1]) : this.read(field[1]));
    }
    return this.end(fields, read);
  }

  /** How many fields a record by name has. */
  private begin(): number {
    const size = this.mapSize();
    this.enter(size);
    return size;
  }

  /** The next field, as a rule that after those read; null, and passed over, where the schema does not know it. */
  private fieldOf(fields: Fields, next: number): Fields[number] | null {
    const key = this.value();
    const field = fields[next]?.[0] === key ? fields[next] : fields.find(([name]) => name === key);
    if (field) return field;
    const other = this.value();
    if (this.depth === 1) this.others.set(key, other);
    return null;
  }

  private isStrings(name: string): boolean {
    return name === "strings" && this.depth === 1;
  }

  private end(fields: Fields, read: ReadonlyMap<string, unknown>): Record<string, unknown> {
    this.leave();
    const out: Record<string, unknown> = {};
    for (const [name, , absent] of fields) {
      if (!read.has(name) && absent === undefined) throw new Unexpected(name);
      out[name] = read.has(name) ? read.get(name) : absent;
    }
    return out;
  }
}

/** A record that is written with the names of its fields, as all large ones are. */
function isNamed(schema: Schema): boolean {
  return schema[0] === "record" && !SCHEMA[schema[1] as string]!.array;
}

/** Made field by field, which the browser does sooner than a copy that is then changed. */
function anotherStorage({ kind, dtype, shape, stride, offset, device, storage, requires_grad, parts, text }: ValueRecord, step: Wire): ValueRecord {
  if (typeof step !== "number" || typeof storage !== "number") throw new Unexpected("ValueRecord");
  return { kind, dtype, shape, stride, offset, device, storage: storage + step, requires_grad, parts, text };
}

function isInt(tag: number): boolean {
  return tag < 0x80 || tag >= 0xe0 || (tag >= 0xcc && tag <= 0xd3);
}

/** Whether a value whose first byte is `tag` may be what the schema says. */
function begins(tag: number, schema: Schema): boolean {
  const isList = (tag >= 0x90 && tag < 0xa0) || tag === 0xdc || tag === 0xdd;
  const isMap = (tag >= 0x80 && tag < 0x90) || tag === 0xde || tag === 0xdf;
  if (typeof schema !== "string") {
    if (schema[0] === "or") return schema.slice(1).some((one) => begins(tag, one as Schema));
    return schema[0] === "list" || (schema[0] === "record" && SCHEMA[schema[1]]!.array) ? isList : isMap;
  }
  switch (schema) {
    case "str": return (tag >= 0xa0 && tag < 0xc0) || (tag >= 0xd9 && tag <= 0xdb);
    case "int": return isInt(tag);
    case "float": return isInt(tag) || tag === 0xca || tag === 0xcb;
    case "bool": return tag === 0xc2 || tag === 0xc3;
    case "none": return tag === 0xc0;
    default: return true;
  }
}
