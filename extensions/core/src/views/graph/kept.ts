// What a drawing keeps across the stages: the open modules, the settings, and the node that the reader follows.

import type { Need } from "../../model";
import type { Host } from "../../host";
import type { State } from "../../state";
import { needsOf as memoryNeeds } from "../memory/halves";
import { loadAlive } from "./alive";
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
  return [...state.graphNeed(), ...colourNeeds(state)];
}

/** The graphs of the partition say what is saved and recomputed; those that run, what is alive. */
function colourNeeds(state: State): Need[] {
  const by = kept.get(state)?.wishes?.by;
  if (by === "alive") return memoryNeeds(state);
  return by === "fate" ? fateGraphs(state).flatMap(({ stage, role }) => state.graphNeed(stage, role)) : [];
}

/** Loads what the colours need; null if all is loaded. */
export function loadColours(state: State, host: Host): Promise<unknown> | null {
  const graphs = state.recording.load(colourNeeds(state));
  return kept.get(state)?.wishes?.by === "alive" ? Promise.all([graphs, loadAlive(host)]) : graphs;
}
