// The notice of a view that has nothing to show: the reason, and a button that leads to a stage with content.

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

/** A button that leads to the next stage with a graph, or false if there is none. */
export function toNextGraph(state: State): HTMLElement | false {
  const next = nearest(state, drawn, 1);
  return next >= 0 && toStage(state, next);
}

/** Replaces a graph: the stage made none, or it failed, or it has not run yet. */
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
        : "The stages appear here as they run.",
    );
  if (stage.name === error?.stage) {
    const given = nearest(state, drawn, -1);
    const did = `${stage.name} ${didIn(error)}`;
    return given < 0
      ? notice(
          "empty",
          `${did}, and no earlier stage made a graph.`,
          error.ran_in_eager
            ? "Dynamo's graph ran in eager. The reason is above."
            : "Only the error above was recorded. Fix its cause, and call the function again.",
        )
      : notice(
          "empty",
          `${did}, so it made no graph.`,
          "Its input is the graph of the previous stage.",
          toStage(state, given),
        );
  }
  const next = nearest(state, drawn, 1);
  const found = next < 0 ? nearest(state, drawn, -1) : next;
  if (found >= 0)
    return notice(
      "empty",
      "This stage made no graph.",
      "The stage found facts or generated code: see its evidence.",
      toStage(state, found),
    );
  return notice(
    "empty",
    "This stage made no graph.",
    error ? `No later stage made a graph: ${ended(error)}.` : "No later stage made a graph either.",
  );
}

export function withoutGraph({ stages }: CompilationData): boolean {
  return stages.every(({ graphs }) => !graphs.size);
}

/** Replaces a stage's evidence. */
export function noEvidence(state: State): HTMLElement {
  const {
    stage,
    compilation: { error },
  } = state;
  if (stage && stage.name === error?.stage)
    return notice(
      "empty",
      error.ran_in_eager ? `${stage.name} refused the program.` : `${stage.name} failed before it gave its reasons.`,
      above(error),
    );
  const said = (record: StageRecord): boolean => record.evidence.length > 0;
  const next = nearest(state, said, 1);
  const found = next < 0 ? nearest(state, said, -1) : next;
  return notice(
    "empty",
    "This stage left no evidence.",
    stage && !stage.form
      ? "The log has the results of this stage, but not the reasons for them."
      : "The stage had nothing to decide for this program.",
    found >= 0 && toStage(state, found),
  );
}

/** Replaces a fact about the whole compilation that a later stage finds. `missing` is a sentence without its end. */
export function notYet({ compilation: { error } }: State, missing: string): HTMLElement {
  return error
    ? notice("empty", `${missing}.`, `${capital(ended(error))}, which comes before that. ${above(error)}`)
    : notice(
        "empty",
        `${missing} yet.`,
        "The compilation is not finished. This view is filled when a later stage has run.",
      );
}

/** The number of the nearest stage in a direction for which `holds` is true, or -1. */
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
