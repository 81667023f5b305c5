// Formats facts as short text, in torch's terms and with units.

import type { ValueRecord } from "./wire";

const SHORT: Record<string, string> = {
  float64: "f64",
  float32: "f32",
  float16: "f16",
  bfloat16: "bf16",
  int64: "i64",
  int32: "i32",
  int16: "i16",
  int8: "i8",
  uint8: "u8",
  bool: "b8",
  complex64: "c64",
  complex128: "c128",
  float8_e4m3fn: "f8e4m3",
  float8_e5m2: "f8e5m2",
};

export function dtype(name: string): string {
  const bare = name.replace(/^torch\./, "");
  return Object.hasOwn(SHORT, bare) ? SHORT[bare]! : bare;
}

export function shape(sizes: readonly (number | string)[]): string {
  return `[${sizes.join(", ")}]`;
}

/** Looks up texts by number; a Recording does this. */
export interface Texts {
  text(index: number): string;
}

/** `f32[4, 8]`, "(f32[4], i64[4])", "Sym(s0)". */
export function value(texts: Texts, record: ValueRecord | null, values: readonly ValueRecord[], depth = 0): string {
  if (!record) return "";
  if (record.kind === "tensor") return dtype(texts.text(record.dtype)) + shape(record.shape);
  if (record.kind === "tuple") {
    if (depth > 3) return "(…)";
    const parts = record.parts.slice(0, 8).map((part) => value(texts, values[part] ?? null, values, depth + 1));
    return `(${parts.join(", ")}${record.parts.length > 8 ? ", …" : ""})`;
  }
  return texts.text(record.text) || record.kind;
}

/** E.g. 20,000. We do not use the browser's formatter: its first use takes longer than opening the recording. */
export function thousands(count: number): string {
  return Number.isInteger(count) ? String(count).replace(/\B(?=(\d{3})+$)/g, ",") : String(count);
}

/** `0.35 ms`, `86.2 ms`, `432 ms`, and from a second on `4.3 s`, as in Python's sentences. */
export function milliseconds(ns: number): string {
  const ms = ns / 1e6;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return ms >= 100 ? `${ms.toFixed(0)} ms` : ms >= 10 ? `${ms.toFixed(1)} ms` : `${ms.toFixed(2)} ms`;
}

export function bytes(count: number | null): string {
  if (count === null) return "symbolic";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = count;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit++;
  }
  return `${unit === 0 ? size : size.toFixed(size < 10 ? 2 : 1)} ${units[unit]}`;
}

export function plural(count: number, noun: string, many = `${noun}s`): string {
  return `${thousands(count)} ${count === 1 ? noun : many}`;
}

/** For a slice up to the end, torch has the largest integer as its end; a number of a symbol has 15 digits. */
export function number(text: string): string {
  return text.replace("9223372036854775807", "end").replace(/(\.\d)0{6,}\b/g, "$1");
}

/** `.slice(0, 1, end)`: one view of a chain. */
export function viewStep(step: string): string {
  return `.${number(step)}`;
}

/** `step after line 8`: what Dynamo compiles after a graph break has a name of Dynamo's. */
export function functionName(name: string): string {
  return name.replace(/torch_dynamo_resume_in_([\w<>]+)_at_(\d+)/g, "$1 after line $2");
}

/** `model.py:12`, from a path of any length. */
export function place(file: string, line: number): string {
  const short = file.split(/[\\/]/).pop() ?? file;
  return line > 0 ? `${short}:${line}` : short;
}
