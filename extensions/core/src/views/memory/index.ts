// Which memory is alive when, over the forward and then the backward, or over a whole training step. The view itself (view.ts) is loaded when it is opened.

import { later } from "../later";
import { halvesIn, needsOf, TRAINING_STEP } from "./halves";

export const memory = later({
  id: "memory",
  title: "Memory",
  applies: ({ recording, compilation, selection }) =>
    !recording.has({ what: "compilation", compilation: selection.compilation }) ||
    halvesIn(compilation).length > 0 ||
    recording.rowCount(TRAINING_STEP) > 0,
  needs: needsOf,
});
