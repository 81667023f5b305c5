// The rows of the view of events, from the log of the first run: each thing that the function did, in its order.

import type { State } from "../../state";
import { NONE } from "../../wire";

export interface Made {
  readonly subject: string; // an input or output, or ""
  readonly fact: string; // a word of terms.toml, or ""
  readonly text: string;
}

export interface Row {
  readonly number: number; // from 1
  readonly what: string;
  readonly tensor: string;
  readonly of: string;
  readonly operator: string;
  readonly node: string; // in the graph of the stage "metadata", or ""
  readonly source: string;
  readonly mode: string;
  readonly made: readonly Made[];
}

export function rowsOf({ compilation: { run }, recording }: State): Row[] {
  if (!run) return [];
  const text = (number: number): string => recording.text(number);
  const tensor = (number: number): string =>
    number === NONE ? "" : text(run.tensors[number] ?? NONE) || `tensor ${number}`;
  return run.events.map((event, i) => ({
    number: i + 1,
    what: text(event.what),
    tensor: tensor(event.tensor),
    of: tensor(event.of),
    operator: text(event.operator),
    node: text(event.node),
    source: text(event.source),
    mode: text(event.mode),
    made: event.made.map((one) => ({ subject: text(one.subject), fact: text(one.fact), text: text(one.text) })),
  }));
}

/** Whether a row has all words. */
export function matches(row: Row, words: readonly string[]): boolean {
  const { what, tensor, of, operator, node, source, mode, made } = row;
  const facts = made.flatMap(({ subject, fact, text }) => [subject, fact, text]);
  const said = [what, tensor, of, operator, node, source, mode, ...facts].join(" ").toLowerCase();
  return words.every((word) => said.includes(word));
}

const CHANGES = new Set(["data", "metadata", "set_", "storage resized"]);
const OWN = new Set(["non_alias", "unsafe_view_alias"]);

/** What the caller notices: the inputs that the call changes, and the results that share memory. */
export function noticed(rows: readonly Row[]): { changed: readonly string[]; views: readonly string[] } {
  const facts = rows.flatMap(({ made }) => made);
  const results = rows.filter(({ what }) => what === "result").flatMap(({ made }) => made);
  return {
    changed: [...new Set(facts.filter(({ fact }) => CHANGES.has(fact)).map(({ subject }) => subject))],
    views: results.filter(({ fact }) => fact && !OWN.has(fact)).map(({ subject }) => subject),
  };
}
