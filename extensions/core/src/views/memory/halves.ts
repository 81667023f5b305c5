// The graphs that run, one after the other: those that a plan of memory is made of.

import type { Graph } from "../../graph";
import type { Need } from "../../model";
import type { State } from "../../state";
import { type CompilationData, NONE } from "../../wire";

export const TRAINING_STEP = "step"; // the kind of rows that have a training step, and in them the phase of the optimizer

export interface Half {
  readonly stage: number;
  readonly role: string;
}

/**
 * After the last stage that has them. Empty if one is missing, and for a captured backward, which has no sizes of its
 * own. The same as `Compilation.memory` in Python.
 */
export function halvesIn({ kind, stages, log }: CompilationData): Half[] {
  if (kind === "compiled autograd" && log === NONE) return [];
  const roles =
    kind === "training" ? ["forward", "backward"] : kind === "compiled autograd" ? ["backward"] : ["inference"];
  const found = roles.map((role) => ({ role, stage: stages.findLastIndex(({ graphs }) => graphs.has(role)) }));
  return found.every(({ stage }) => stage >= 0) ? found : [];
}

export function needsOf(state: State): Need[] {
  return halvesIn(state.compilation).flatMap(({ stage, role }) => state.graphNeed(stage, role));
}

export function graphsOf({ recording, compilation }: State): Graph[] {
  return halvesIn(compilation).flatMap(
    ({ stage, role }) => recording.graph(compilation, compilation.stages[stage]!, role) ?? [],
  );
}
