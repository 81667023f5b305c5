// Listings are created once per graph, and the code view and the diff share them.

import { type Listing, listing } from "../code/python";
import type { Graph } from "../graph";
import type { Recording } from "../model";
import type { State } from "../state";
import type { CompilationData } from "../wire";

const made = new WeakMap<Graph, Listing>();

export function listingOf(state: State, graph: Graph): Listing {
  return listingIn(state.recording, state.compilation, graph);
}

/** Of a graph of any compilation. */
export function listingIn(recording: Recording, compilation: CompilationData, graph: Graph): Listing {
  let found = made.get(graph);
  if (!found) made.set(graph, (found = listing(recording, compilation, graph)));
  return found;
}
