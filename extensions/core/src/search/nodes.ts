// Finds nodes by their properties. All words must occur; `op:`, `name:`, `shape:`, `dtype:`, `line:` and `module:` say
// in which property. The browser's own search finds nothing in a canvas or a closed group.

import * as format from "../format";
import type { Graph, Node } from "../graph";
import type { State } from "../state";

export const FIELDS = ["name", "op", "shape", "dtype", "line", "module"] as const;
export type Field = (typeof FIELDS)[number];

export interface Term {
  readonly field: Field | "any";
  readonly text: string; // lower case, and without spaces for a shape
}

/** `op:mm shape:[8, 64] "a b"`: terms are separated by spaces outside quotes and brackets. */
export function parseQuery(query: string): Term[] {
  const terms = query.toLowerCase().match(/(?:\[[^\]]*\]?|"[^"]*"?|[^\s["])+/g) ?? [];
  return terms.flatMap((term) => {
    const colon = term.indexOf(":");
    const field = FIELDS.find((name) => name === term.slice(0, Math.max(0, colon)));
    const text = (field ? term.slice(colon + 1) : term).replaceAll('"', "");
    const shape = /^(\w+)?\[|^\d+(x\d+)+$/.test(text);
    const plain = shape ? (/^\d+x/.test(text) ? `[${text.replaceAll("x", ",")}` : text).replace(/\s/g, "") : text;
    return plain ? [{ field: field ?? "any", text: plain }] : [];
  });
}

type Texts = { readonly [field in Field]: string };

export class SearchIndex {
  private texts: Texts[] | null = null;

  constructor(
    private readonly state: State,
    private readonly graph: Graph,
  ) {}

  /** Indices of the nodes that match all terms, in order. */
  find(query: string): number[] {
    const terms = parseQuery(query);
    if (!terms.length) return [];
    this.texts ??= this.graph.nodes.map((node) => this.textsOf(node));
    const out: number[] = [];
    this.texts.forEach((texts, i) => {
      if (
        terms.every(({ field, text }) =>
          field === "any" ? FIELDS.some((name) => texts[name].includes(text)) : texts[field].includes(text),
        )
      )
        out.push(i);
    });
    return out;
  }

  /** The node whose exact name is in the query, or -1: tanh_1 is not tanh_10. */
  named(query: string, among: readonly number[]): number {
    const wanted = parseQuery(query).flatMap(({ field, text }) => (field === "any" || field === "name" ? [text] : []));
    return among.find((node) => wanted.includes(this.graph.nodes[node]!.name.toLowerCase())) ?? -1;
  }

  private textsOf(node: Node): Texts {
    const { recording, compilation } = this.state;
    const inner = node.modules[node.modules.length - 1];
    const { value, source } = node;
    const tensor = value?.kind === "tensor" ? value : null;
    return {
      name: `${node.name} ${node.descriptor}`.toLowerCase(),
      op: node.op === "o" ? "output" : node.target.toLowerCase(),
      shape: format.value(recording, value, compilation.values).replace(/\s/g, "").toLowerCase(),
      dtype: tensor
        ? `${recording.text(tensor.dtype)} ${format.dtype(recording.text(tensor.dtype))}`.toLowerCase()
        : "",
      line: source ? `${source.file}:${source.line} ${source.scope} ${source.code}`.toLowerCase() : "",
      module: inner ? `${inner.path} ${inner.type}`.toLowerCase() : "",
    };
  }
}
