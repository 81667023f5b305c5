// From the bytes of a file to a RecordingData that the views can trust: its head, unzip (bounded), msgpack, then a check
// of every field against the SCHEMA generated from events.py, and of every index against the list that it points into.
// Whatever is wrong becomes one RecordingError whose message says what and where, and what to do.

import { inSteps } from "./breath";
import { unzipped } from "./bytes";
import { countsOf } from "./counting";
import { addUp, withoutDeltas } from "./deltas";
import { plural } from "./format";
import { decodeMsgpack, MsgpackError } from "./msgpack";
import { RecordReader, Unexpected } from "./records";
import {
  Float, FORMAT, type GraphSnapshot, MAGIC, NONE, type RecordingData, SCHEMA, type Schema, type ValueRecord, VERSION, type Wire,
} from "./wire";

const MAX_STAGES = 2000; // a list of more than this is not from a pipeline
const MAX_COMPILATIONS = 20_000; // a shelf holds 256; the logs of a large job, thousands
const MAX_BYTES = 1 << 28; // of msgpack, unzipped
const MAX_ITEMS = 1 << 25; // of all its lists and maps. A graph of a million nodes has 28 million

const LARGE = 1 << 23; // bytes of msgpack that take a second to read, or more

export class RecordingError extends Error {}

/** What a reader is told while a large recording is read, and whether he still wants it. */
export interface Opening {
  readonly signal: AbortSignal;
  told(share: number): void; // from 0 to 1
}

/**
 * `file` is what `recording.save` wrote, or what a page holds: the same without the head.
 * `takesLong` is told how large a recording is before it is read, if that takes longer than anybody waits without a word.
 * Such a one is read step by step. Raises RecordingError, and the signal's reason.
 */
export async function decodeRecording(file: Uint8Array, takesLong?: (size: string) => Promise<Opening>): Promise<RecordingData> {
  const bytes = await gunzip(withoutHead(file));
  const size = bytes.length > LARGE ? sizeOf(bytes) : "";
  const opening = size ? await takesLong?.(size) : undefined;
  return (await quick(bytes, opening)) ?? checked(tree(bytes));
}

/** What follows a file's head, as aotviz/recording/files.py writes it: the magic bytes and two of the version. Raises RecordingError. */
export function withoutHead(file: Uint8Array): Uint8Array {
  if (file.length === 0 || MAGIC.some((byte, i) => i < file.length && file[i] !== byte)) return file; // a page's, or no recording
  const end = MAGIC.length + 2;
  const version = file.length < end ? NONE : file[end - 2]! * 256 + file[end - 1]!;
  if (version > VERSION) throw newer(version);
  if (version === 0) throw new RecordingError("This recording is damaged: its head says format 0.");
  if (file.length <= end) throw new RecordingError("This recording is damaged: it ends too early. Was it copied in full?");
  return file.subarray(end);
}

function newer(version: number): RecordingError {
  return new RecordingError(`This recording was written in format ${version}; this viewer reads up to ${VERSION}. Upgrade aotviz.`);
}

/** In words; "" where it is damaged, as the readers will say. Raises RecordingError for a recording that is whole but too large for a page. */
function sizeOf(bytes: Uint8Array): string {
  let counts;
  try {
    counts = countsOf(bytes);
  } catch (error) {
    if (error instanceof MsgpackError) return "";
    throw error;
  }
  const [nodes, graphs, compilations] = [plural(counts.nodes, "node"), plural(counts.graphs, "graph"), plural(counts.compilations, "compilation")];
  const size = `${nodes} in ${graphs} of ${compilations}`;
  if (counts.items <= MAX_ITEMS) return size;
  throw new RecordingError(
    `This recording is too large for a page: ${size}. ` +
    "In a notebook, aotviz.load(file) shows it one graph at a time, and aotviz.load(file)[0].stages is a table.");
}

/** Null where anything in it is not as it should be. */
async function quick(bytes: Uint8Array, opening: Opening | undefined): Promise<RecordingData | null> {
  const reader = new RecordReader(bytes, MAX_ITEMS);
  const read = opening
    ? await inSteps(reader.wholeRecordInSteps("RecordingData"), opening.signal, opening.told).catch(noneIfUnexpected)
    : whole(reader, "RecordingData");
  const data = read as RecordingData | null;
  if (!data || data.format !== FORMAT || data.version < 1 || data.version > VERSION || data.compilations.length > MAX_COMPILATIONS) return null;
  if (reader.others.get("deltas") === true) addUp(data);
  else if (reader.packed) return null;
  checkIndices(data);
  return data;
}

function whole(reader: RecordReader, name: string): unknown {
  try {
    return reader.wholeRecord(name);
  } catch (error) {
    return noneIfUnexpected(error);
  }
}

function noneIfUnexpected(error: unknown): null {
  if (error instanceof Unexpected || error instanceof MsgpackError) return null;
  throw error;
}

/** One record of a recording that comes in parts. The numbers in it are the source's to check. */
export async function decodePart(bytes: Uint8Array, record: string): Promise<unknown> {
  const part = await gunzip(bytes);
  const reader = new RecordReader(part, MAX_ITEMS);
  const read = whole(reader, record);
  return read && !reader.packed ? read : converted(tree(part), ["record", record], record);
}

function tree(bytes: Uint8Array): Wire {
  try {
    return withoutDeltas(decodeMsgpack(bytes));
  } catch (error) {
    if (error instanceof MsgpackError) throw new RecordingError(`This recording is damaged: ${error.message}.`);
    throw error;
  }
}

/** The recording in an already decoded tree, checked. */
export function checked(tree: Wire): RecordingData {
  const format = tree instanceof Map ? tree.get("format") : undefined;
  if (format !== FORMAT) throw new RecordingError("This is not an aotviz recording.");
  const version = (tree as Map<Wire, Wire>).get("version");
  if (typeof version !== "number" || version < 1) throw new RecordingError("This recording says no version.");
  if (version > VERSION) throw newer(version);
  const compilations = (tree as Map<Wire, Wire>).get("compilations");
  if (Array.isArray(compilations) && compilations.length > MAX_COMPILATIONS) {
    throw new RecordingError(`This recording is damaged: it claims ${compilations.length} compilations.`);
  }
  const data = converted(tree, ["record", "RecordingData"], "recording") as RecordingData;
  checkIndices(data);
  return data;
}

export async function gunzip(file: Uint8Array): Promise<Uint8Array> {
  if (file[0] !== 0x1f || file[1] !== 0x8b) throw new RecordingError("This is not an aotviz recording. Open a file that `recording.save(path)` wrote.");
  const parts: Uint8Array[] = [];
  let size = 0;
  const reader = unzipped(file as Uint8Array<ArrayBuffer>).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
      if (size > MAX_BYTES) throw new RecordingError("This recording is too large for a page: it unzips to more than 256 MiB. Record fewer compilations at a time.");
      parts.push(value);
    }
  } catch (error) {
    if (error instanceof RecordingError) throw error;
    throw new RecordingError("This recording is damaged: it does not unzip. Was it copied in full?");
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** The tree as what the schema says. Names of places cost more than all the rest, so they are made only to say what is wrong. */
function converted(tree: Wire, schema: Schema, name: string): unknown {
  try {
    return convert(tree, schema, null);
  } catch (error) {
    if (!(error instanceof RecordingError)) throw error;
    return convert(tree, schema, name);
  }
}

/** `path`: the place of the value in the recording, or null while nobody asks. */
function convert(value: Wire | undefined, schema: Schema, path: string | null): unknown {
  if (typeof schema === "string") return leaf(value, schema, path);
  switch (schema[0]) {
    case "list": {
      if (!Array.isArray(value)) throw wrong("a list", value, path);
      const item = schema[1];
      if (item === "int" && value.every((part) => typeof part === "number")) return value; // the columns of a graph
      return value.map((part, i) => convert(part, item, path && `${path}[${i}]`));
    }
    case "map": {
      if (!(value instanceof Map)) throw wrong("a map", value, path);
      const out = new Map<unknown, unknown>();
      for (const [key, part] of value) {
        out.set(convert(key, schema[1], path && `a key of ${path}`), convert(part, schema[2], path && `${path}.${String(key)}`));
      }
      return out;
    }
    case "or": {
      for (let i = 1; i < schema.length; i++) {
        if (fits(value, schema[i] as Schema)) return convert(value, schema[i] as Schema, path);
      }
      throw wrong((schema.slice(1) as Schema[]).map((part) => (typeof part === "string" ? part : part[0])).join(" or "), value, path);
    }
    case "record": {
      const record = SCHEMA[schema[1]]!;
      const out: Record<string, unknown> = {};
      if (record.array) {
        if (!Array.isArray(value)) throw wrong(`a ${schema[1]}`, value, path);
        if (value.length !== record.fields.length) throw wrong(`${record.fields.length} fields`, value.length, path);
        for (let i = 0; i < value.length; i++) {
          const [name, part] = record.fields[i]!;
          out[name] = convert(value[i], part, path && `${path}.${name}`);
        }
      } else {
        if (!(value instanceof Map)) throw wrong(`a ${schema[1]}`, value, path);
        for (const [name, part, absent] of record.fields) {
          out[name] = absent !== undefined && !value.has(name) ? absent : convert(value.get(name), part, path && `${path}.${name}`);
        }
      }
      return out;
    }
  }
}

function leaf(value: Wire | undefined, schema: string, path: string | null): unknown {
  if (!fits(value, schema)) throw wrong({ str: "text", int: "an integer", bool: "true or false" }[schema] ?? schema, value, path);
  if (schema === "int") return Number(value);
  if (schema === "float") return value instanceof Float ? value.value : Number(value);
  return value;
}

function fits(value: Wire | undefined, schema: Schema): boolean {
  if (typeof schema !== "string") {
    if (schema[0] === "list") return Array.isArray(value);
    if (schema[0] === "record") return SCHEMA[schema[1]]!.array ? Array.isArray(value) : value instanceof Map;
    return schema[0] === "map" && value instanceof Map;
  }
  switch (schema) {
    case "str": return typeof value === "string";
    case "int": return typeof value === "number" || typeof value === "bigint";
    case "float": return value instanceof Float || typeof value === "number";
    case "bool": return typeof value === "boolean";
    case "none": return value === null;
    default: return value !== undefined;
  }
}

function wrong(expected: string, value: unknown, path: string | null): RecordingError {
  const got = value === undefined ? "nothing" : value === null ? "None"
    : Array.isArray(value) ? "a list" : value instanceof Map ? "a map" : String(value).slice(0, 40);
  return new RecordingError(`This recording is damaged: ${path ?? ""} should be ${expected}, but is ${got}.`);
}

function checkIndices(data: RecordingData): void {
  for (const [i, compilation] of data.compilations.entries()) {
    const where = `compilations[${i}]`;
    const [values, strings] = [compilation.values.length, data.strings.length];
    if (compilation.stages.length > MAX_STAGES) {
      throw new RecordingError(`This recording is damaged: ${where} claims ${compilation.stages.length} stages.`);
    }
    let good: Partial<ValueRecord> = {}; // the value before: as a rule, the next says the same
    for (let j = 0; j < values; j++) {
      const value = compilation.values[j]!;
      const { dtype, device, text, parts } = value;
      if (dtype === good.dtype && device === good.device && text === good.text && !parts.length) continue;
      good = value;
      if (!isWithin(dtype, strings) || !isWithin(device, strings) || !isWithin(text, strings)) within([dtype, device, text], strings, `${where}.values[${j}]`);
      if (parts.length) within(parts, j, `${where}.values[${j}].parts`); // earlier ones: nothing contains itself
    }
    compilation.graphs.forEach((graph, j) => checkGraph(graph, strings, values, `${where}.graphs[${j}]`));
    for (const [j, storage] of compilation.storages.entries()) {
      storage.tensors.forEach((tensor, k) => within([tensor.view_of], k, `${where}.storages[${j}].tensors[${k}]`)); // an earlier one: no circles
      if (storage.writes.some(({ tensor }) => tensor < 0)) throw new RecordingError(`This recording is damaged: ${where}.storages[${j}] has a write to no tensor.`);
      within(storage.writes.map(({ tensor }) => tensor), storage.tensors.length, `${where}.storages[${j}].writes`);
    }
    for (const stage of compilation.stages) {
      within([...stage.graphs.values()], compilation.graphs.length, `${where}.stages.${stage.name}.graphs`);
    }
  }
}

export function checkGraph(graph: GraphSnapshot, strings: number, values: number, where: string): void {
  const nodes = graph.op.length;
  for (const name of ["name", "target", "args", "value", "stack", "module", "sequence", "backward"] as const) {
    if (graph[name].length !== nodes) {
      throw new RecordingError(
        `This recording is damaged: ${where}.${name} should have ${nodes} entries, one a node, but has ${graph[name].length}.`);
    }
  }
  for (const name of ["name", "target", "stack", "module"] as const) within(graph[name], strings, `${where}.${name}`);
  within(graph.value, values, `${where}.value`);
  within([...graph.descriptor.values()], strings, `${where}.descriptor`);
  within(graph.output_descriptors, strings, `${where}.output_descriptors`);
}

function within(indices: readonly number[], size: number, where: string): void {
  for (let i = 0; i < indices.length; i++) {
    if (!isWithin(indices[i]!, size)) throw new RecordingError(`This recording is damaged: ${where} points at ${indices[i]}, of ${size}.`);
  }
}

function isWithin(index: number, size: number): boolean {
  return Number.isInteger(index) && index >= NONE && index < size;
}
