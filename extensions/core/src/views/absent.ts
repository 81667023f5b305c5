// What a view says where it has nothing to show: why that is, and a button that leads to where there is something.

import { h, notice } from "../dom";
import { didIn } from "../outcome";
import type { State } from "../state";
import type { CompilationData, ErrorRecord, StageRecord } from "../wire";

function ended({ ran_in_eager, stage }: ErrorRecord): string {
  return ran_in_eager ? `the program was refused in ${stage}` : `the compilation failed in ${stage}`;
}

function above({ ran_in_eager }: ErrorRecord): string {
  return ran_in_eager ? "The reason is above." : "The error is above.";
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function drawn(record: StageRecord): boolean {
  return record.graphs.size > 0;
}

/** A button that leads to the next stage with a graph; false where none follows. */
export function toNextGraph(state: State): HTMLElement | false {
  const next = nearest(state, drawn, 1);
  return next >= 0 && toStage(state, next);
}

/** In place of a graph: the stage made none, or it failed, or the compilation has not come that far. */
export function noGraph(state: State): HTMLElement {
  const {
    stage,
    compilation: { error },
  } = state;
  if (!stage)
    return notice(
      "empty",
      "No stage has run.",
      error
        ? `${error.ran_in_eager ? "The program was refused" : "The compilation failed"} before its first stage.`
        : "What it does shows here as it happens.",
    );
  if (stage.name === error?.stage) {
    const given = nearest(state, drawn, -1);
    const did = `${stage.name} ${didIn(error)}`;
    return given < 0
      ? notice(
          "empty",
          `${did}, and no stage before it made a graph.`,
          error.ran_in_eager
            ? "Its graph ran as Dynamo captured it. The reason is above."
            : "The error above is all there is to see. Mend what it names, and call the function again.",
        )
      : notice(
          "empty",
          `${did}, so it made no graph.`,
          "What it was given is the graph of the stage before.",
          toStage(state, given),
        );
  }
  const next = nearest(state, drawn, 1);
  const found = next < 0 ? nearest(state, drawn, -1) : next;
  if (found >= 0)
    return notice(
      "empty",
      "This stage made no graph.",
      "It only found something out, or wrote code: see its evidence.",
      toStage(state, found),
    );
  return notice(
    "empty",
    "This stage made no graph.",
    error ? `Nor did a later one: ${ended(error)}.` : "Nor did a later one.",
  );
}

export function withoutGraph({ stages }: CompilationData): boolean {
  return stages.every(({ graphs }) => !graphs.size);
}

/** In place of a stage's reasons. */
export function noEvidence(state: State): HTMLElement {
  const {
    stage,
    compilation: { error },
  } = state;
  if (stage && stage.name === error?.stage)
    return notice(
      "empty",
      error.ran_in_eager ? "It refused the program." : "It failed before it could give its reasons.",
      above(error),
    );
  const said = (record: StageRecord): boolean => record.evidence.length > 0;
  const next = nearest(state, said, 1);
  const found = next < 0 ? nearest(state, said, -1) : next;
  return notice(
    "empty",
    "This stage left no evidence.",
    "It had nothing to decide for this program.",
    found >= 0 && toStage(state, found),
  );
}

/** In place of a fact of the whole compilation that a late stage finds: `missing` is a sentence without its end. */
export function notYet({ compilation: { error } }: State, missing: string): HTMLElement {
  return error
    ? notice("empty", `${missing}.`, `${capital(ended(error))}, which comes before that. ${above(error)}`)
    : notice("empty", `${missing} yet.`, "The compilation has not come that far. It shows here when it has.");
}

/** The number of the nearest stage in a direction of which something is true; -1 where there is none. */
function nearest(
  { compilation: { stages }, selection }: State,
  holds: (stage: StageRecord) => boolean,
  step: 1 | -1,
): number {
  for (let i = selection.stage + step; i >= 0 && i < stages.length; i += step) if (holds(stages[i]!)) return i;
  return -1;
}

function toStage(state: State, stage: number): HTMLElement {
  return h(
    "button",
    { type: "button", class: "small", on: { click: () => state.openStage(stage) } },
    `Go to ${state.compilation.stages[stage]!.name}`,
  );
}
