// Compares two compilations side by side: A is the open one, B is the other. Stages are matched by name. Only facts
// that differ are shown.

import { called, calledIn } from "../../called";
import { changes } from "../../changes";
import { type Child, h, quoted, replace } from "../../dom";
import { bytes, milliseconds } from "../../format";
import { inFull } from "../../outcome";
import type { State } from "../../state";
import type { CompilationData } from "../../wire";
import { chip, table } from "../table";
import { boards, type Column } from "../compared/columns";
import { differingFacts } from "./facts";

interface StageRow {
  readonly name: string;
  readonly a: number; // position among the stages, -1 if it lacks the stage
  readonly b: number;
}

export function comparison(state: State, other: number): HTMLElement {
  const { recording, compilation: a } = state;
  const b = recording.compilation(other);
  const facts = differingFacts(a, b);
  const place = h("section", { class: "comparison", "aria-label": "Two compilations compared" });
  const letters = { A: a, B: b };
  const title = (letter: keyof typeof letters): string => `${letter} · ${called(letters[letter])}`;
  const columns = (
    [
      [state.selection.compilation, "A"],
      [other, "B"],
    ] as const
  ).map(([compilation, letter]): Column => ({
    compilation,
    head: () => [mark(letter), h("h3", {}, calledIn(letters[letter]))],
  }));
  replace(
    place,
    h(
      "p",
      { class: "lead" },
      "Two compilations compared ",
      h("span", { class: "spring" }),
      h(
        "button",
        { type: "button", class: "small", on: { click: () => state.openView("diff") } },
        "Diff of the graphs",
      ),
      " ",
      h("button", { type: "button", class: "small", on: { click: () => state.compareWith(null) } }, "Close"),
    ),
    h(
      "section",
      { class: "side-by-side", "aria-label": "Why they were compiled" },
      columns.map((column) =>
        h(
          "div",
          { class: "side" },
          h("header", {}, column.head()),
          why(state, recording.compilation(column.compilation)),
        ),
      ),
    ),
    (a.storages.length > 0 || b.storages.length > 0) && boards(state, columns),
    facts.length
      ? table(
          "Facts that differ",
          [
            { title: "About", cell: (row) => row.about },
            { title: "Fact", cell: (row) => row.fact },
            { title: title("A"), term: "A", kind: "code", cell: (row) => quoted(row.a || "–") },
            { title: title("B"), term: "B", kind: "code", cell: (row) => quoted(row.b || "–") },
          ],
          facts,
        )
      : h("p", { class: "muted" }, "No option, input, output or saved tensor differs."),
    table(
      "Stages",
      [
        { title: "Stage", cell: (row) => row.name },
        { title: title("A"), term: "A", kind: "text", cell: (row) => cell(state, a, row.a) },
        { title: title("B"), term: "B", kind: "text", cell: (row) => cell(state, b, row.b) },
      ],
      matched(a, b),
      {
        onRow: (row) => {
          if (row.a < 0) return;
          state.openStage(row.a);
          if (row.b >= 0 && b.stages[row.b]!.graphs.size) state.compareWith({ compilation: other, stage: row.b });
          state.openView("diff");
        },
      },
    ),
  );
  return place;
}

function mark(letter: "A" | "B"): HTMLElement {
  return chip(letter, letter === "A" ? "grad" : "alias");
}

/** Why a compilation was made: the sentence, the line that it is about, and what to do. */
function why(state: State, { id, because, error }: CompilationData): Child {
  const rows = state.recording.rows("why")?.part.why ?? [];
  const found = rows.filter(({ compilation }) => compilation === id);
  if (found.length)
    return found.map(({ words, code, place, fix }) =>
      h(
        "div",
        { class: "why" },
        h("p", {}, quoted(words)),
        place && h("p", { class: "line" }, h("span", { class: "faint" }, place), code && h("code", {}, code)),
        fix && h("p", {}, h("b", {}, "What to do: "), quoted(fix)),
      ),
    );
  if (because.length) return h("p", { class: "why" }, quoted(because[0]!));
  return h("p", { class: "why muted" }, error ? inFull(error) : "No earlier program was tried for this call.");
}

/** The stages of both in order; a stage that only one has keeps its position. */
export function matched(a: CompilationData, b: CompilationData): StageRow[] {
  const rows: StageRow[] = [];
  let next = 0;
  a.stages.forEach(({ name }, i) => {
    const at = b.stages.findIndex((stage, j) => j >= next && stage.name === name);
    for (let j = next; j < at; j++) rows.push({ name: b.stages[j]!.name, a: -1, b: j });
    rows.push({ name, a: i, b: at });
    if (at >= 0) next = at + 1;
  });
  for (let j = next; j < b.stages.length; j++) rows.push({ name: b.stages[j]!.name, a: -1, b: j });
  return rows;
}

function cell(state: State, compilation: CompilationData, index: number): Child {
  const stage = compilation.stages[index];
  if (!stage) return h("span", { class: "faint" }, "–");
  const graphs = changes(state.recording, compilation, index).map(
    ({ role, nodes, bytes: size }) => `${role} ${nodes}${size > 0 ? ` · ${bytes(size)}` : ""}`,
  );
  return [
    [...graphs, ...(stage.elapsed_ns > 0 ? [milliseconds(stage.elapsed_ns)] : [])].join(" · "),
    h("small", {}, quoted(stage.summary)),
  ];
}
