// Chooses what to compare with: the previous stage, any stage of this compilation, or another compilation.

import { h } from "../../dom";
import type { Against, State } from "../../state";

export function opponent(state: State): HTMLSelectElement {
  const { selection, recording, compilation } = state;
  const { against } = selection;
  const choices: { value: Against | null; text: string; group: string }[] = [];
  const before = against ? null : state.opposite;
  const name = before && compilation.stages[before.stage]!.name;
  choices.push({
    value: null,
    text: before ? `the previous stage: ${name} · ${before.role}` : "the previous stage",
    group: "",
  });
  compilation.stages.forEach((stage, i) => {
    for (const role of stage.graphs.keys()) {
      if (i !== selection.stage || role !== selection.role)
        choices.push({
          value: { compilation: selection.compilation, stage: i, role },
          text: `${i + 1} ${stage.name} · ${role}`,
          group: "this compilation",
        });
    }
  });
  recording.index.compilations.forEach((head, i) => {
    if (i !== selection.compilation)
      choices.push({
        value: { compilation: i },
        text: `${head.id} · ${head.name}${head.kind && ` (${head.kind})`}`,
        group: "the same stage of another compilation",
      });
  });
  const current = JSON.stringify(against && { ...against });
  if (!choices.some(({ value }) => JSON.stringify(value) === current))
    choices.push({ value: against, text: "the chosen stage", group: "another compilation" });
  const groups = [...new Set(choices.map(({ group }) => group))];
  const options = (group: string): HTMLElement[] =>
    choices.flatMap(({ value, text, group: own }, i) =>
      own === group ? [h("option", { value: i, selected: JSON.stringify(value) === current }, text)] : [],
    );
  const select = h(
    "select",
    { class: "opponent", "aria-label": "Compare with" },
    groups.map((group) => (group ? h("optgroup", { label: group }, options(group)) : options(group))),
  );
  select.addEventListener("change", () => state.compareWith(choices[Number(select.value)]!.value));
  return select;
}
