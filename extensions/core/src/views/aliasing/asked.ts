// Opens the aliasing view at the row of an input or an output, or at a tensor of the board. It is not part of the
// selection.

import type { State } from "../../state";
import type { CompilationData } from "../../wire";

export interface Asked {
  readonly name: string;
  readonly onBoard: boolean; // else in the tables
}

const asked = new WeakMap<State, Asked>();

export function showRow(state: State, name: string): void {
  asked.set(state, { name, onBoard: false });
  state.openView("aliasing");
}

export function showTensor(state: State, name: string): void {
  asked.set(state, { name, onBoard: true });
  state.openView("aliasing");
}

/** Returns the request once, and clears it. */
export function takeAsked(state: State): Asked | null {
  const found = asked.get(state) ?? null;
  asked.delete(state);
  return found;
}

/** The place of each tensor of the board, by its name: its storage, and its number there. */
export function onBoard({ storages }: CompilationData): ReadonlyMap<string, readonly [number, number]> {
  const found = new Map<string, readonly [number, number]>();
  storages.forEach(({ tensors }, storage) =>
    tensors.forEach(({ names, node, step }, number) => {
      const item = /\[\d+\]$/.exec(step)?.[0] ?? ""; // of an operator with several results
      for (const name of names.length ? names : node ? [node + item] : [])
        if (!found.has(name)) found.set(name, [storage, number]);
    }),
  );
  return found;
}
