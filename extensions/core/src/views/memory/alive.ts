// The bytes that are alive while each node of any graph of a compilation runs. A node of another graph than those that
// run is found by its value.

import type { Graph } from "../../graph";
import type { State } from "../../state";
import { graphsOf } from "./halves";
import { type OwnPlan, planOf, UnknownSizes } from "./plan";

const plans = new WeakMap<Graph, OwnPlan | null>(); // by the first graph that runs

export function aliveOf(state: State, graph: Graph): (number | null)[] {
  const plan = plannedOf(state);
  if (!plan) return graph.nodes.map(() => null);
  const byValue = new Map<number, number>();
  for (const [at, { node }] of plan.moments.entries())
    if (!byValue.has(node.valueIndex)) byValue.set(node.valueIndex, plan.alive[at]!);
  const half = graphsOf(state).indexOf(graph);
  return graph.nodes.map(({ op, index, valueIndex }) => {
    if (op === "p" || op === "o") return null;
    if (half >= 0) return plan.alive[plan.momentOf[half]![index]!] ?? null;
    return (valueIndex >= 0 ? byValue.get(valueIndex) : undefined) ?? null;
  });
}

function plannedOf(state: State): OwnPlan | null {
  const graphs = graphsOf(state);
  const [first] = graphs;
  if (!first) return null;
  let plan = plans.get(first);
  if (plan === undefined) {
    const { compilation, recording } = state;
    try {
      plan = planOf(graphs, compilation, (number) => recording.text(number), compilation.sizes);
    } catch (error) {
      if (!(error instanceof UnknownSizes)) throw error;
      plan = null;
    }
    plans.set(first, plan);
  }
  return plan;
}
