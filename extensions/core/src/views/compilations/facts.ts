// The facts in which two compilations differ, one row each: options, inputs, outputs, saved tensors, the wrapper.

import { inFull } from "../../outcome";
import type { CompilationData } from "../../wire";

export interface FactRow {
  readonly about: string; // e.g. "input x"
  readonly fact: string; // e.g. "shape"
  readonly a: string;
  readonly b: string;
}

export function differingFacts(a: CompilationData, b: CompilationData): FactRow[] {
  const rows: FactRow[] = [];
  const put = (about: string, fact: string, x: string, y: string): void => {
    if (x !== y) rows.push({ about, fact, a: x, b: y });
  };
  put("compilation", "function", a.name, b.name);
  put("compilation", "kind", a.kind, b.kind);
  put("compilation", "cache", a.cache?.outcome ?? "", b.cache?.outcome ?? "");
  put("compilation", "error", failure(a), failure(b));
  for (const name of new Set([...a.options.keys(), ...b.options.keys()]))
    put("option", name, a.options.get(name) ?? "", b.options.get(name) ?? "");
  compared("input", a.inputs, b.inputs, put);
  compared("output", a.outputs, b.outputs, put);
  put("saved tensors", "count", String(a.saved_tensors.length), String(b.saved_tensors.length));
  compared("saved tensor", a.saved_tensors, b.saved_tensors, put);
  const lines = ({ wrapper }: CompilationData): string => (wrapper ? `${wrapper.source.split("\n").length} lines` : "");
  if (a.wrapper?.source !== b.wrapper?.source)
    rows.push({ about: "wrapper", fact: "source", a: lines(a), b: lines(b) });
  return rows;
}

/** Compares records with the same name field by field; a record that only one side has is one row. */
function compared<R extends { readonly name: string }>(
  what: string,
  a: readonly R[],
  b: readonly R[],
  put: (about: string, fact: string, x: string, y: string) => void,
): void {
  const theirs = new Map(b.map((record) => [record.name, record]));
  const ours = new Set(a.map(({ name }) => name));
  for (const record of a) {
    const other = theirs.get(record.name);
    if (!other) {
      put(`${what} ${record.name}`, "", "present", "");
      continue;
    }
    for (const field of Object.keys(record) as (keyof R & string)[])
      put(
        `${what} ${record.name}`,
        field === "nbytes" ? "bytes" : field.replace(/_/g, " "),
        said(record[field]),
        said(other[field]),
      );
  }
  for (const { name } of b) if (!ours.has(name)) put(`${what} ${name}`, "", "", "present");
}

function said(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(said).join(", ")}]`;
  return value === null || value === "" ? "" : value === true ? "yes" : value === false ? "no" : String(value);
}

function failure({ error }: CompilationData): string {
  return error ? inFull(error) : "";
}
