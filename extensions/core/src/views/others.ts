// The graphs that the open one can be compared with, or drawn beside: those of the other stages, and the same stage of the
// other compilations.

import { called } from "../called";
import { h } from "../dom";
import type { Against, State } from "../state";

export interface Other<T = Against> {
  readonly value: T;
  readonly text: string;
  readonly group: string; // a title in the list, or ""
}

export function others({ selection, recording, compilation }: State): Other[] {
  const stages = compilation.stages.flatMap(({ name, graphs }, i) =>
    [...graphs.keys()]
      .filter((role) => i !== selection.stage || role !== selection.role)
      .map((role) => ({
        value: { compilation: selection.compilation, stage: i, role },
        text: `${i + 1} ${name} · ${role}`,
        group: "this compilation",
      })),
  );
  const compilations = recording.index.compilations.flatMap((head, i) =>
    i === selection.compilation
      ? []
      : {
          value: { compilation: i },
          text: `${called(head)}${head.kind && ` (${head.kind})`}`,
          group: "the same stage of another compilation",
        },
  );
  return [...stages, ...compilations];
}

/** Options in groups; the value of each is its position in the list. */
export function optionsOf<T>(choices: readonly Other<T>[], selected = -1): HTMLElement[] {
  return [...new Set(choices.map(({ group }) => group))].flatMap((group) => {
    const options = choices.flatMap(({ text, group: own }, i) =>
      own === group ? h("option", { value: i, selected: i === selected }, text) : [],
    );
    return group ? h("optgroup", { label: group }, options) : options;
  });
}
