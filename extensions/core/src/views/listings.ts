// Listings are made once per graph and shared by the code view and the diff.

import { type Listing, listing } from "../code/python";
import type { Graph } from "../model";
import type { State } from "../state";

const made = new WeakMap<Graph, Listing>();

export function listingOf(state: State, graph: Graph): Listing {
  let found = made.get(graph);
  if (!found) made.set(graph, (found = listing(state.recording, state.compilation, graph)));
  return found;
}
