// Shows the stage's reasons for its decisions, and its other texts.

import { type Child, h, quoted, replace } from "../../dom";
import { plural } from "../../format";
import type { State } from "../../state";
import type { Evidence } from "../../wire";
import { explained } from "../../terms";
import { noEvidence } from "../absent";
import { table } from "../table";
import type { Context, Mounted, View } from "../view";

/** The subjects for which the stage gave one reason. */
interface Group {
  readonly subjects: readonly string[];
  readonly reason: string;
}

const MOST_SUBJECTS = 12; // listed for one reason

function grouped(evidence: readonly Evidence[]): Group[] {
  const groups = new Map<string, string[]>();
  for (const { subject, reason } of evidence) {
    const found = groups.get(reason);
    if (found) found.push(subject);
    else groups.set(reason, [subject]);
  }
  return [...groups].map(([reason, subjects]) => ({ subjects, reason }));
}

/** For each node name, the graph of this stage that has the node. */
function rolesOf({ stage, compilation, recording }: State): Map<string, string> {
  const roles = new Map<string, string>();
  for (const role of [...(stage?.graphs.keys() ?? [])].reverse()) {
    for (const { name } of recording.graph(compilation, stage!, role)?.nodes ?? []) roles.set(name, role);
  }
  return roles;
}

/** The subjects, as links if they name nodes of this stage. */
function subjects(state: State, roles: ReadonlyMap<string, string>, { subjects: names }: Group): Child {
  const link = (name: string): Child => {
    const role = roles.get(name);
    if (role === undefined) return h("span", {}, name);
    return h(
      "button",
      { type: "button", class: "link", on: { click: () => state.openNamed(state.selection.stage, role, name) } },
      name,
    );
  };
  const listed = (some: readonly string[]): HTMLElement => h("span", { class: "subjects" }, some.map(link));
  if (names.length <= MOST_SUBJECTS) return listed(names);
  const rest = names.slice(MOST_SUBJECTS);
  const more = h("details", { class: "more-subjects" }, h("summary", {}, `and ${plural(rest.length, "other")}`));
  more.addEventListener("toggle", () => more.childElementCount === 1 && more.append(listed(rest)), { once: true });
  return [listed(names.slice(0, MOST_SUBJECTS)), more];
}

export const evidence: View = {
  id: "evidence",
  title: "Evidence",
  isEmpty: ({ stages }) => stages.every(({ evidence: said }) => !said.length),
  needs(state) {
    const { compilation, stage } = state.selection;
    const roles = [...(state.stage?.graphs.keys() ?? [])];
    return [
      ...roles.flatMap((role) => state.graphNeed(stage, role)),
      ...(state.stage?.code.size ? [{ what: "code", compilation, stage } as const] : []),
    ];
  },
  badge: ({ stage }) => String(stage?.evidence.length || ""),
  mount(parent: HTMLElement, { state }: Context): Mounted {
    let shown: unknown = null;
    const update = (): void => {
      const stage = state.stage;
      if (shown === stage) return;
      shown = stage;
      if (!stage || (!stage.evidence.length && !stage.code.size)) {
        replace(parent, noEvidence(state));
        return;
      }
      const roles = rolesOf(state);
      replace(
        parent,
        h(
          "div",
          { class: "page" },
          stage.form &&
            h("p", { class: "faint form", ...explained("forms", stage.form) }, "Result: ", h("code", {}, stage.form)),
          stage.evidence.length > 0 &&
            table(
              "Why",
              [
                { title: "About", kind: "code", cell: (row) => subjects(state, roles, row) },
                { title: "Reason", kind: "prose", cell: (row) => quoted(row.reason) },
              ],
              grouped(stage.evidence),
            ),
          [...stage.code].map(([name, text]) =>
            h(
              "figure",
              {},
              h("figcaption", {}, name === "guards" ? "guards, as torch wrote them" : name),
              h("pre", { class: "as-written", tabindex: "0" }, text),
            ),
          ),
        ),
      );
    };
    update();
    return { update, destroy() {} };
  },
};
