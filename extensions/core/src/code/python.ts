// Writes a graph as Python-like code with one line per node, which a reader who knows torch can read without a legend.
// The user's source line is a comment above its nodes. Each line knows its node, so that the code, the diff and the
// graph can share one selection.

import * as format from "../format";
import { type Graph, type Node, referred } from "../graph";
import type { Recording } from "../model";
import { type CompilationData, Float, type Wire } from "../wire";

export interface Listing {
  readonly lines: readonly string[];
  readonly nodes: readonly number[]; // for each line, its node or -1
  readonly lineOf: ReadonlyMap<number, number>; // node -> line, from 0
}

const LONGEST = 4000; // characters in a line; longer lines make an editor slow

const INFIX: Record<string, string> = {
  add: "+",
  sub: "-",
  mul: "*",
  truediv: "/",
  floordiv: "//",
  mod: "%",
  pow: "**",
  eq: "==",
  ne: "!=",
  lt: "<",
  le: "<=",
  gt: ">",
  ge: ">=",
  and_: "&",
  or_: "|",
};

export function listing(recording: Recording, compilation: CompilationData, graph: Graph): Listing {
  const lines: string[] = [];
  const nodes: number[] = [];
  const lineOf = new Map<number, number>();
  const put = (text: string, node = -1): void => {
    if (node >= 0) lineOf.set(node, lines.length);
    for (const line of text.split(/\r\n|[\r\n]/)) {
      lines.push(line.length > LONGEST ? `${line.slice(0, LONGEST)} …` : line);
      nodes.push(node);
    }
  };
  const parameters = graph.nodes.filter((node) => node.op === "p");
  put(`def ${identifier(graph.role)}(${parameters.length ? "" : "):"}`);
  for (const node of parameters) {
    const type = format.value(recording, node.value, compilation.values);
    put(`    ${node.name}${type && `: ${type}`},${node.descriptor && `  # ${node.descriptor}`}`, node.index);
  }
  if (parameters.length) put("):");
  let source = "";
  let backward = false;
  for (const node of graph.nodes) {
    if (node.op === "p") continue;
    if (node.backward !== backward && node.op !== "o") {
      backward = node.backward;
      if (graph.role === "joint") {
        put("");
        put(backward ? "    # ---- backward ----" : "    # ---- forward ----");
      }
      source = "";
    }
    const comment = sourceComment(node);
    if (comment && comment !== source) {
      if (source) put("");
      put(`    ${comment}`);
    }
    if (comment) source = comment;
    if (node.op === "o") {
      put("");
      put(`    return ${node.args.map((arg) => argument(arg, node, graph, recording)).join(", ")}`, node.index);
      continue;
    }
    const type = format.value(recording, node.value, compilation.values);
    put(`    ${node.name}${type && `: ${type}`} = ${call(node, graph, recording)}`, node.index);
  }
  return { lines, nodes, lineOf };
}

function sourceComment(node: Node): string {
  if (!node.source) return "";
  const { file, line, scope, code } = node.source;
  return "# " + [file && format.place(file, line) + (scope && ` in ${scope}`), code].filter(Boolean).join(": ");
}

/** The right-hand side of a node's line. */
export function call(node: Node, graph: Graph, recording: Recording): string {
  const args = node.args.map((arg) => argument(arg, node, graph, recording));
  const keywords = [...(node.kwargs ?? [])].map(
    ([key, arg]) => `${String(key)}=${argument(arg, node, graph, recording)}`,
  );
  const all = [...args, ...keywords].join(", ");
  if (node.op === "a") return `self.${node.target}`;
  if (node.op === "m") return `self.${node.target}(${all})`;
  if (node.op === "c") return `${args[0] ?? "None"}.${node.target}(${[...args.slice(1), ...keywords].join(", ")})`;
  const operator = /^(?:_?operator)\.(\w+)$/.exec(node.target)?.[1];
  if (operator === "getitem" && args.length === 2) return `${args[0]}[${args[1]}]`;
  if (operator && Object.hasOwn(INFIX, operator) && args.length === 2)
    return `${args[0]} ${INFIX[operator]} ${args[1]}`;
  return `${node.target.replace(/^torch\.ops\./, "")}(${all})`;
}

export function argument(arg: Wire | undefined, node: Node, graph: Graph, recording: Recording): string {
  const again = (part: Wire): string => argument(part, node, graph, recording);
  if (arg === null || arg === undefined) return "None";
  if (arg === true) return "True";
  if (arg === false) return "False";
  if (typeof arg === "string") return quoted(arg);
  if (arg instanceof Float) return float(arg.value);
  if (Array.isArray(arg)) {
    const target = referred(arg, node.index);
    if (target >= 0) return graph.nodes[target]!.name;
    return `[${(arg[0] === "L" ? arg.slice(1) : arg).map(again).join(", ")}]`;
  }
  if (arg instanceof Map) {
    const text = arg.get("r");
    if (typeof text === "number") return recording.text(text);
    const slice = arg.get("s");
    if (Array.isArray(slice)) return `slice(${slice.map(again).join(", ")})`;
    const items = arg.get("d");
    const entries = items instanceof Map ? [...items] : [...arg];
    return `{${entries.map(([key, part]) => `${again(key)}: ${again(part)}`).join(", ")}}`;
  }
  return format.number(String(arg));
}

function float(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&").replace(/\n/g, "\\n").replace(/\r/g, "\\r")}'`;
}

function identifier(text: string): string {
  return text.replace(/\W/g, "_") || "graph";
}
