// A captured backward: autograd's nodes in the order in which eager runs them. The view itself (view.ts) is loaded when
// it is opened.

import { later } from "../later";

export const backward = later({
  id: "backward",
  title: "Backward",
  applies: ({ compilation }) => compilation.kind === "compiled autograd",
  isEmpty: ({ visits }) => !visits.length,
  badge: ({ compilation }) => String(compilation.visits.length || ""),
  needs: () => [],
});
