// Decodes the bytes of a file into a RecordingData that the views can trust. It reads the head, unzips (bounded), reads
// msgpack and checks every field against the SCHEMA generated from schema.py. Then it checks every index against the
// list that it points into. Every problem becomes one RecordingError that says what is wrong, where, and what to do.

import { atOnce, inSteps } from "./chunked_work";
import { unzipped } from "./bytes";
import { countsOf } from "./counting";
import { addUp } from "./deltas";
import { plural } from "./format";
import { MAX_ITEMS, MsgpackError } from "./msgpack";
import { RecordReader, Unexpected } from "./records";
import {
  FORMAT,
  type GraphSnapshot,
  MAGIC,
  NONE,
  type RecordingData,
  type ValueRecord,
  VERSION,
  type Wire,
} from "./wire";

const MAX_STAGES = 2000; // no pipeline has more
const MAX_COMPILATIONS = 20_000; // a recording of ours has at most 256; the logs of a large job have thousands
const MAX_BYTES = 1 << 28; // of msgpack, unzipped

const LARGE = 1 << 23; // bytes of msgpack that take a second to read, or more

export class RecordingError extends Error {}

/** Reports progress while a large recording is decoded, and tells whether the reader cancelled it. */
export interface Opening {
  readonly signal: AbortSignal;
  told(share: number): void; // from 0 to 1
}

/**
 * `file` is what `recording.save` wrote, or what a page contains: the same without the head.
 * `takesLong` is called with the size before a recording is decoded that is so large that a reader expects progress.
 * Such a recording is decoded step by step. Raises RecordingError, and the signal's reason.
 */
export async function decodeRecording(
  file: Uint8Array,
  takesLong?: (size: string) => Promise<Opening>,
): Promise<RecordingData> {
  const bytes = await gunzip(withoutHead(file));
  const size = bytes.length > LARGE ? sizeOf(bytes) : "";
  const opening = size ? await takesLong?.(size) : undefined;
  return read(bytes, opening);
}

/**
 * The bytes after a file's head. The head has the magic bytes and two bytes of the version, as
 * aotviz/recording/files.py writes it. Raises RecordingError.
 */
export function withoutHead(file: Uint8Array): Uint8Array {
  // Either a page's recording, or no recording.
  if (file.length === 0 || MAGIC.some((byte, i) => i < file.length && file[i] !== byte)) return file;
  const end = MAGIC.length + 2;
  const version = file.length < end ? NONE : file[end - 2]! * 256 + file[end - 1]!;
  if (version > VERSION) throw newer(version);
  if (version === 0) throw new RecordingError("This recording is damaged: its head says format 0.");
  if (file.length <= end)
    throw new RecordingError("This recording is damaged: it ends too early. Was it copied in full?");
  return file.subarray(end);
}

function newer(version: number): RecordingError {
  return new RecordingError(
    `This recording was written in format ${version}; this viewer reads up to ${VERSION}. Upgrade aotviz.`,
  );
}

/**
 * The size in words, or "" if the recording is damaged; then decoding says so. Raises RecordingError for a recording
 * that is complete but too large for a page.
 */
function sizeOf(bytes: Uint8Array): string {
  let counts;
  try {
    counts = countsOf(bytes);
  } catch (error) {
    if (error instanceof MsgpackError) return "";
    throw error;
  }
  const [nodes, graphs, compilations] = [
    plural(counts.nodes, "node"),
    plural(counts.graphs, "graph"),
    plural(counts.compilations, "compilation"),
  ];
  const size = `${nodes} in ${graphs} of ${compilations}`;
  if (counts.items <= MAX_ITEMS) return size;
  throw new RecordingError(
    `This recording is too large for a page: ${size}. ` +
      "In a notebook, aotviz.load(file) shows it one graph at a time, and aotviz.load(file)[0].stages is a table.",
  );
}

/** Reads the fields one by one, to tell a newer recording from a damaged one. */
class Head {
  known = false; // whether it is a recording at all
  deltas = false;

  heard(field: Wire, value: unknown): void {
    if (field === "format") {
      if (value !== FORMAT) throw noRecording();
      this.known = true;
    } else if (field === "version") {
      if ((value as number) < 1) throw new RecordingError("This recording has no version.");
      if ((value as number) > VERSION) throw newer(value as number);
    } else if (field === "compilations") {
      const { length } = value as unknown[];
      if (length > MAX_COMPILATIONS)
        throw new RecordingError(`This recording is damaged: it claims ${length} compilations.`);
    } else if (field === "deltas") this.deltas = value === true;
  }
}

async function read(bytes: Uint8Array, opening: Opening | undefined): Promise<RecordingData> {
  const head = new Head();
  const reader = new RecordReader(bytes, (field, value) => head.heard(field, value));
  const work = reader.whole("RecordingData");
  let data: RecordingData;
  try {
    data = (opening ? await inSteps(work, opening.signal, opening.told) : atOnce(work)) as RecordingData;
  } catch (error) {
    throw error instanceof Unexpected && !head.known ? noRecording() : damaged(error, "recording");
  }
  if (head.deltas) addUp(data);
  else if (reader.packed)
    throw new RecordingError("This recording is damaged: it contains differences but is not marked so.");
  checkIndices(data);
  return data;
}

/** One record of a recording that comes in parts. The source checks the numbers in it. */
export async function decodePart(bytes: Uint8Array, record: string): Promise<unknown> {
  const reader = new RecordReader(await gunzip(bytes));
  let part;
  try {
    part = atOnce(reader.whole(record));
  } catch (error) {
    throw damaged(error, record);
  }
  if (reader.packed) throw new RecordingError("This recording is damaged: a part of it contains differences.");
  return part;
}

/** The RecordingError for an error that decoding `what` raised. */
function damaged(error: unknown, what: string): unknown {
  if (error instanceof Unexpected) return new RecordingError(`This recording is damaged: ${error.said(what)}`);
  if (error instanceof MsgpackError) return new RecordingError(`This recording is damaged: ${error.message}.`);
  return error;
}

function noRecording(): RecordingError {
  return new RecordingError("This is not an aotviz recording.");
}

export async function gunzip(file: Uint8Array): Promise<Uint8Array> {
  if (file[0] !== 0x1f || file[1] !== 0x8b)
    throw new RecordingError("This is not an aotviz recording. Open a file that `recording.save(path)` wrote.");
  const parts: Uint8Array[] = [];
  let size = 0;
  const reader = unzipped(file as Uint8Array<ArrayBuffer>).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
      if (size > MAX_BYTES)
        throw new RecordingError(
          "This recording is too large for a page: it unzips to more than 256 MiB. Record fewer compilations at a time.",
        );
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

function checkIndices(data: RecordingData): void {
  for (const [i, compilation] of data.compilations.entries()) {
    const where = `compilations[${i}]`;
    const [values, strings] = [compilation.values.length, data.strings.length];
    if (compilation.stages.length > MAX_STAGES) {
      throw new RecordingError(`This recording is damaged: ${where} claims ${compilation.stages.length} stages.`);
    }
    let good: Partial<ValueRecord> = {}; // the previous value: usually the next has the same fields
    for (let j = 0; j < values; j++) {
      const value = compilation.values[j]!;
      const { dtype, device, text, parts } = value;
      if (dtype === good.dtype && device === good.device && text === good.text && !parts.length) continue;
      good = value;
      if (!isWithin(dtype, strings) || !isWithin(device, strings) || !isWithin(text, strings))
        within([dtype, device, text], strings, `${where}.values[${j}]`);
      if (parts.length) within(parts, j, `${where}.values[${j}].parts`); // earlier ones: no cycles
    }
    compilation.graphs.forEach((graph, j) => checkGraph(graph, strings, values, `${where}.graphs[${j}]`));
    for (const [j, storage] of compilation.storages.entries()) {
      // Only an earlier one, so that there is no cycle.
      storage.tensors.forEach((tensor, k) => within([tensor.view_of], k, `${where}.storages[${j}].tensors[${k}]`));
      if (storage.writes.some(({ tensor }) => tensor < 0))
        throw new RecordingError(`This recording is damaged: ${where}.storages[${j}] has a write without a tensor.`);
      within(
        storage.writes.map(({ tensor }) => tensor),
        storage.tensors.length,
        `${where}.storages[${j}].writes`,
      );
    }
    const { run } = compilation;
    for (const { tensor, of } of run?.events ?? []) within([tensor, of], run!.tensors.length, `${where}.run`);
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
        `This recording is damaged: ${where}.${name} should have ${nodes} entries, one per node, but has ${graph[name].length}.`,
      );
    }
  }
  for (const name of ["name", "target", "stack", "module"] as const) within(graph[name], strings, `${where}.${name}`);
  within(graph.value, values, `${where}.value`);
  within([...graph.descriptor.values()], strings, `${where}.descriptor`);
  within(graph.output_descriptors, strings, `${where}.output_descriptors`);
}

function within(indices: readonly number[], size: number, where: string): void {
  for (let i = 0; i < indices.length; i++) {
    if (!isWithin(indices[i]!, size))
      throw new RecordingError(`This recording is damaged: ${where} points at ${indices[i]}, of ${size}.`);
  }
}

function isWithin(index: number, size: number): boolean {
  return Number.isInteger(index) && index >= NONE && index < size;
}
