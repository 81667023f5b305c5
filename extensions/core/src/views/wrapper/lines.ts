// Finds the lines of the generated wrapper that exist because of a fact, and opens the view that shows them.

import type { State } from "../../state";
import type { WrapperNote } from "../../wire";

/** What the wrapper view should show. It is not part of the selection. */
interface Asked {
  readonly notes: readonly number[]; // by their number in the record
  readonly line: number; // from 0, where no note is about it; else -1
}
const asked = new WeakMap<State, Asked>();

/** Opens the wrapper view at the lines of some notes. */
export function showLines(state: State, notes: readonly number[]): void {
  asked.set(state, { notes, line: -1 });
  state.openView("wrapper");
}

/** Opens the wrapper view at a line, from 0, and at the notes about it. */
export function showLine(state: State, line: number): void {
  const notes = (state.compilation.wrapper?.notes ?? []).flatMap(({ first, last }, i) =>
    first - 1 <= line && line < last ? [i] : [],
  );
  asked.set(state, { notes, line: notes.length ? -1 : line });
  state.openView("wrapper");
}

/** Returns what was requested once, and clears the request. */
export function takeAsked(state: State): Asked | null {
  const found = asked.get(state) ?? null;
  asked.delete(state);
  return found;
}

/** The numbers of the notes that are about one of some names. */
export function notesAbout(notes: readonly WrapperNote[], names: readonly string[]): number[] {
  const wanted = new Set(names);
  return notes.flatMap(({ subject }, i) =>
    subject !== "" && subjects(subject).some((name) => wanted.has(name)) ? [i] : [],
  );
}

/** The names in a subject: "base of a, b" is also about a and b, "a and b" about both, "w.a" about w. */
export function subjects(subject: string): string[] {
  const members = subject.replace(/^base of /, "").split(/, | and /);
  return [...new Set([subject, ...members])];
}

/** The parts of a generated source, by their first line (from 0): what autograd calls, and what the user calls. */
export function sectionsOf(source: string): { title: string; line: number }[] {
  const found: { title: string; line: number }[] = [];
  let inClass = false;
  source.split("\n").forEach((text, line) => {
    const opened = /^(class|def) (\w+)/.exec(text);
    if (opened) inClass = opened[1] === "class";
    const method = inClass ? /^ {4}def (forward|backward)\b/.exec(text) : null;
    if (opened?.[1] === "class") found.push({ title: "autograd.Function", line });
    else if (method) found.push({ title: method[1]!, line });
    else if (opened) found.push({ title: `${opened[2]}()`, line });
  });
  return found;
}
