// What the user's function did with its tensors, in order. The view itself (view.ts) is loaded when it is opened.

import { later } from "../later";

export const events = later({
  id: "events",
  title: "Events",
  applies: ({ compilation }) => compilation.kind !== "compiled autograd",
  isEmpty: ({ run }) => !run,
  badge: ({ compilation: { run } }) => String(run?.events.length || ""),
});
