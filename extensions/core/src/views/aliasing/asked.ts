// Opens the aliasing view at the row of an input or an output. The row is not part of the selection.

import type { State } from "../../state";

const asked = new WeakMap<State, string>();

export function showRow(state: State, name: string): void {
  asked.set(state, name);
  state.openView("aliasing");
}

/** Returns the requested name once, and clears the request. */
export function takeAsked(state: State): string | null {
  const name = asked.get(state) ?? null;
  asked.delete(state);
  return name;
}
