// Chooses what to compare with: the previous stage, any stage of this compilation, or another compilation.

import { h } from "../../dom";
import type { Against, State } from "../../state";
import { type Other, optionsOf, others } from "../others";

export function opponent(state: State): HTMLSelectElement {
  const { against } = state.selection;
  const before = against ? null : state.opposite;
  const name = before && state.compilation.stages[before.stage]!.name;
  const previous = `the previous stage${before ? `: ${name} · ${before.role}` : ""}`;
  const choices: Other<Against | null>[] = [{ value: null, text: previous, group: "" }, ...others(state)];
  const current = JSON.stringify(against);
  let selected = choices.findIndex(({ value }) => JSON.stringify(value) === current);
  if (selected < 0)
    selected = choices.push({ value: against, text: "the chosen stage", group: "another compilation" }) - 1;
  const select = h("select", { class: "opponent", "aria-label": "Compare with" }, optionsOf(choices, selected));
  select.addEventListener("change", () => state.compareWith(choices[Number(select.value)]!.value));
  return select;
}
