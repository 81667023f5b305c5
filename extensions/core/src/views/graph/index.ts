// The graph view: the drawing of the selected graph, and of those that the reader wants beside it.

import { withoutGraph } from "../absent";
import type { View } from "../view";
import { SideBySide } from "./beside";
import { needsOf } from "./kept";

export const graph: View = {
  id: "graph",
  title: "Graph",
  isEmpty: withoutGraph,
  needs: needsOf,
  mount: (parent, context) => new SideBySide(parent, context),
};
