// Why the stage decided as it did, in its own words; and the other texts that it made.

import { type Child, h, notice, replace } from "../../dom";
import type { State } from "../../state";
import { table } from "../table";
import type { Context, Mounted, View } from "../view";

/** The subject, as a link where it names a node of this stage. */
function subject(state: State, name: string): Child {
  const { stage, compilation, recording } = state;
  for (const role of stage?.graphs.keys() ?? []) {
    const node = recording.graph(compilation, stage!, role)?.nodes.find((other) => other.name === name);
    if (node) {
      return h("button", {
        type: "button", class: "link",
        on: {
          click: () => state.openNamed(state.selection.stage, role, name),
        },
      }, name);
    }
  }
  return name;
}

export const evidence: View = {
  id: "evidence",
  title: "Evidence",
  needs(state) {
    const { compilation, stage } = state.selection;
    const roles = [...(state.stage?.graphs.keys() ?? [])];
    return [...roles.flatMap((role) => state.graphNeed(stage, role)), ...(state.stage?.code.size ? [{ what: "code", compilation, stage } as const] : [])];
  },
  badge: ({ stage }) => String(stage?.evidence.length || ""),
  mount(parent: HTMLElement, { state }: Context): Mounted {
    let shown: unknown = null;
    const update = (): void => {
      const stage = state.stage;
      if (shown === stage) return;
      shown = stage;
      if (!stage || (!stage.evidence.length && !stage.code.size)) {
        replace(parent, notice("empty", "This stage left no evidence.", "It had nothing to decide for this program."));
        return;
      }
      replace(parent, h("div", { class: "page" },
        stage.evidence.length > 0 && table("Why", [
          { title: "About", kind: "code", cell: (row) => subject(state, row.subject) },
          { title: "Reason", kind: "prose", cell: (row) => row.reason },
        ], stage.evidence),
        [...stage.code].map(([name, text]) => h("figure", {}, h("figcaption", {}, name), h("pre", { tabindex: "0" }, text)))));
    };
    update();
    return { update, destroy() {} };
  },
};
