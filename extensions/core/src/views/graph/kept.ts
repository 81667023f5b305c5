// What a drawing keeps across the stages: the open modules, the settings, and the node that the reader follows.

import type { Need } from "../../model";
import type { State } from "../../state";
import { fateGraphs } from "./colouring";
import type { Wishes } from "./controls";
import type { Seen } from "./identity";

export interface Kept {
  readonly open: Map<string, Set<string>>; // per compilation and role
  wishes: Wishes | null;
  node: Seen | null; // the last one selected
}
const kept = new WeakMap<State, Kept>();

export function keptOf(state: State): Kept {
  let found = kept.get(state);
  if (!found) kept.set(state, (found = { open: new Map(), wishes: null, node: null }));
  return found;
}

/** What must be loaded for the drawing of a state's graph. */
export function needsOf(state: State): Need[] {
  return [...state.graphNeed(), ...(kept.get(state)?.wishes?.by === "fate" ? fateNeeds(state) : [])];
}

/** The graphs of the partition say what is saved and recomputed. */
export function fateNeeds(state: State): Need[] {
  return fateGraphs(state).flatMap(({ stage, role }) => state.graphNeed(stage, role));
}
