// What a view says where it has nothing to show: why that is, and a button that leads to where there is something.

import { h, notice } from "../dom";
import type { State } from "../state";
import type { StageRecord } from "../wire";

/** In place of a graph: the stage made none, or it failed, or the compilation has not come that far. */
export function noGraph(state: State): HTMLElement {
  const { stage, compilation: { error } } = state;
  const drawn = (record: StageRecord): boolean => record.graphs.size > 0;
  if (!stage) return notice("empty", "No stage has run.", error ? "The compilation failed before its first stage." : "What it does shows here as it happens.");
  if (stage.name === error?.stage) {
    const given = nearest(state, drawn, -1);
    return given < 0 ? notice("empty", `${stage.name} failed, and no stage before it made a graph.`, "The error above is all there is to see. Mend what it names, and call the function again.")
      : notice("empty", `${stage.name} failed, so it made no graph.`, "What it was given is the graph of the stage before.", toStage(state, given));
  }
  const next = nearest(state, drawn, 1);
  const found = next < 0 ? nearest(state, drawn, -1) : next;
  if (found >= 0) return notice("empty", "This stage made no graph.", "It only found something out, or wrote code: see its evidence.", toStage(state, found));
  return notice("empty", "This stage made no graph.", error ? `Nor did a later one: the compilation failed in ${error.stage}.` : "Nor did a later one.");
}

/** In place of a stage's reasons. */
export function noEvidence(state: State): HTMLElement {
  const { stage, compilation: { error } } = state;
  if (stage && stage.name === error?.stage) return notice("empty", "It failed before it could give its reasons.", "The error is above.");
  const said = (record: StageRecord): boolean => record.evidence.length > 0;
  const next = nearest(state, said, 1);
  const found = next < 0 ? nearest(state, said, -1) : next;
  return notice("empty", "This stage left no evidence.", "It had nothing to decide for this program.", found >= 0 && toStage(state, found));
}

/** In place of a fact of the whole compilation that a late stage finds: `missing` is a sentence without its end. */
export function notYet({ compilation: { error } }: State, missing: string): HTMLElement {
  return error
    ? notice("empty", `${missing}.`, `The compilation failed in ${error.stage}, which comes before that. The error is above.`)
    : notice("empty", `${missing} yet.`, "The compilation has not come that far. It shows here when it has.");
}

/** The number of the nearest stage in a direction of which something is true; -1 where there is none. */
function nearest({ compilation: { stages }, selection }: State, holds: (stage: StageRecord) => boolean, step: 1 | -1): number {
  for (let i = selection.stage + step; i >= 0 && i < stages.length; i += step) if (holds(stages[i]!)) return i;
  return -1;
}

function toStage(state: State, stage: number): HTMLElement {
  return h("button", { type: "button", class: "small", on: { click: () => state.openStage(stage) } }, `Go to ${state.compilation.stages[stage]!.name}`);
}
