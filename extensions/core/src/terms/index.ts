// What the words of the workbench mean. Every badge, column, tab, stage, form and legend entry gets its tooltip here, and
// a mark by which the help finds the words that are on the screen. The words are in aotviz/explain/terms.toml.

import { unquoted } from "../dom";
import { WORDS } from "./words";

export type Group = "stages" | "forms" | "tabs" | "badges" | "columns" | "colours" | "words";

export interface Term {
  readonly id: string; // group/name
  readonly name: string;
  readonly group: Group;
  readonly kind: string; // of its group, for a reader
  readonly text: string; // two sentences
}

const KINDS: Readonly<Record<Group, string>> = {
  stages: "stage",
  forms: "what the stage returns",
  tabs: "view",
  badges: "badge",
  columns: "column",
  colours: "colour or line",
  words: "word",
};

function groupOf(written: string): Group {
  return written.endsWith("stages") || written === "whole_backward" ? "stages" : (written as Group);
}

const exact = new Map<string, Term>(); // by group/text
const patterns: { readonly group: Group; readonly pattern: RegExp; readonly term: Term }[] = [];
const words = Object.entries(WORDS).flatMap(([group, terms]) => terms.map((term) => [groupOf(group), term] as const));
export const TERMS: readonly Term[] = words.map(([group, [name, text, shown = []]]) => {
  const term = { id: `${group}/${name}`, name, group, kind: KINDS[group], text };
  for (const one of [name, ...shown]) {
    if (!one.includes("*")) exact.set(`${group}/${one}`, exact.get(`${group}/${one}`) ?? term);
    else patterns.push({ group, term, pattern: new RegExp(`^${one.split("*").map(escaped).join(".*")}$`) });
  }
  return term;
});

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/** The term that a text stands for in its place; null for a word of the user's own, such as a stage that they added. */
export function termOf(group: Group, shown: string): Term | null {
  const text = group === "stages" ? shown.replace(/ \(attempt \d+\)$/, "") : shown;
  return (
    exact.get(`${group}/${text}`) ?? patterns.find((one) => one.group === group && one.pattern.test(text))?.term ?? null
  );
}

/** The attributes of an element that shows a term: its tooltip, and its mark. `own` is what is special about this one. */
export function explained(group: Group, shown: string, own = ""): { [attribute: string]: string | undefined } {
  const term = termOf(group, shown);
  const text = [own, term?.text].filter(Boolean).join("\n\n");
  return { title: unquoted(text) || undefined, "data-term": term?.id };
}

/** The terms in which all words of a query occur, those whose name has them first. */
export function search(query: string): Term[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (text: string): boolean => words.every((word) => text.toLowerCase().includes(word));
  const rank = ({ name }: Term): number => (name.toLowerCase() === query.trim().toLowerCase() ? 0 : has(name) ? 1 : 2);
  return TERMS.filter((term) => has(`${term.name} ${term.kind} ${term.text}`)).sort((a, b) => rank(a) - rank(b));
}
