// What the view shows: the plan of the selected compilation, or of a whole training step. And how its nodes are opened
// in the other views, and found when they are selected there.

import type { Node } from "../../graph";
import type { State } from "../../state";
import type { StepRecord } from "../../wire";
import { graphsOf, halvesIn } from "./halves";
import { type Maker, type OwnPlan, type Plan, planOf } from "./plan";
import { type Found, planOfStep } from "./step";
import type { Sizes } from "./sizes";

export interface Shown {
  readonly plan: Plan;
  /** Whether the graph with that number is the one that is selected. */
  isOpen(half: number): boolean;
  open(half: number, maker: Maker): void;
  /** The moment of the selected node, and the storage that it makes. */
  find(node: Node): Found;
}

/** Throws UnknownSizes. */
export function ofCompilation(state: State, sizes: Sizes): Shown {
  const text = (number: number): string => state.recording.text(number);
  const plan = planOf(graphsOf(state), state.compilation, text, sizes);
  const places = halvesIn(state.compilation);
  const isOpen = (half: number): boolean =>
    state.selection.stage === places[half]?.stage && state.selection.role === places[half]?.role;
  return {
    plan,
    isOpen,
    open(half, { index, name }) {
      if (isOpen(half)) state.openNode(index);
      else state.openNamed(places[half]!.stage, places[half]!.role, name);
    },
    find: (node) => ({ moment: momentOf(state, plan, node), holder: plan.holderOf.get(node.valueIndex) ?? null }),
  };
}

/** The moment of a node of any stage: of the node itself, else of the one with its value. -1 if it does not run. */
function momentOf(state: State, { moments, momentOf: of }: OwnPlan, node: Node): number {
  if (node.op === "p" || node.op === "o") return -1;
  const half = graphsOf(state).indexOf(state.graph!);
  if (half >= 0) return of[half]![node.index]!;
  const { valueIndex, backward } = node;
  return moments.findIndex(
    ({ node: { valueIndex: number }, phase }) =>
      number === valueIndex && number >= 0 && backward === (phase === "backward"),
  );
}

export function ofStep(state: State, record: StepRecord): Shown {
  const plan = planOfStep(record);
  const isOpen = (half: number): boolean => {
    const graph = plan.graphs[half];
    const { compilation, stage, selection } = state;
    return graph?.compilation === compilation.id && graph.stage === stage?.name && graph.role === selection.role;
  };
  return {
    plan,
    isOpen,
    open(half, { index, name }) {
      const graph = plan.graphs[half]!;
      if (isOpen(half)) return state.openNode(index);
      const { compilations } = state.recording.index;
      state.openIn(
        compilations.findIndex(({ id }) => id === graph.compilation),
        graph.stage,
        graph.role,
        name,
      );
    },
    find: (node) => plan.find(state.compilation.id, state.selection.role, node.name),
  };
}
