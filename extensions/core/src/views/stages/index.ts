// The rail: every stage in order, what it changed, how long it took, how many nodes there are after it. Arrow keys
// step through it.

import { h, replace } from "../../dom";
import { milliseconds } from "../../format";
import { previousGraph, type Recording, timed } from "../../model";
import type { CompilationData, StageRecord } from "../../wire";
import { chip } from "../table";
import type { Context, Mounted } from "../view";

export function stages(parent: HTMLElement, { state }: Context): Mounted {
  let shown: unknown = null;
  let rows: HTMLElement[] = [];

  const build = (): void => {
    const { compilation, recording } = state;
    const longest = Math.max(1, ...compilation.stages.map((stage) => stage.elapsed_ns));
    rows = compilation.stages.map((stage, i) => row(recording, compilation, stage, i, longest));
    rows.forEach((element, i) => element.addEventListener("click", () => state.openStage(i)));
    replace(parent, h("ol", { class: "stages", role: "listbox", "aria-label": "Stages", on: { keydown: step } }, rows, unfinished(compilation)));
  };

  const step = (event: KeyboardEvent): void => {
    const { stage } = state.selection;
    const last = rows.length - 1;
    const next = { ArrowDown: stage + 1, ArrowUp: stage - 1, j: stage + 1, k: stage - 1, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    state.openStage(Math.max(0, Math.min(last, next)));
    rows[state.selection.stage]?.focus();
  };

  const update = (): void => {
    if (shown !== state.compilation.stages) {
      shown = state.compilation.stages;
      build();
    }
    rows.forEach((element, i) => {
      const selected = i === state.selection.stage;
      element.setAttribute("aria-selected", String(selected));
      element.tabIndex = selected ? 0 : -1;
    });
    const current = rows[state.selection.stage];
    if (current) keepInView(parent, current);
  };
  update();
  return { update, destroy() {} };
}

/** Scrolls the rail only: scrollIntoView would move the notebook as well. */
function keepInView(rail: HTMLElement, row: HTMLElement): void {
  const [outer, inner] = [rail.getBoundingClientRect(), row.getBoundingClientRect()];
  if (inner.top < outer.top) rail.scrollTop -= outer.top - inner.top;
  else if (inner.bottom > outer.bottom) rail.scrollTop += inner.bottom - outer.bottom;
}

function row(recording: Recording, compilation: CompilationData, stage: StageRecord, index: number, longest: number): HTMLElement {
  const failed = compilation.error?.stage === stage.name;
  const bar = h("i");
  const share = stage.elapsed_ns / longest;
  bar.style.width = `${(100 * share).toFixed(1)}%`;
  return h("li", { role: "option", class: `stage${stage.changed ? "" : " same"}${failed ? " failed" : ""}`, data: { stage: stage.name }, title: stage.summary },
    h("span", { class: "number" }, index + 1),
    h("span", { class: "name" }, stage.name, stage.late && chip("late", "", "ran after the compilation had returned"), failed && chip("failed", "removed")),
    h("span", { class: "time" }, timed(compilation) && milliseconds(stage.elapsed_ns)),
    h("span", { class: "what" }, stage.summary),
    h("span", { class: "counts" }, nodeCounts(recording, compilation, stage, index)),
    share > 0.02 && h("span", { class: "share", "aria-hidden": "true" }, bar));
}

/** A stage that raised returned nothing to record; it is named at the end all the same. */
function unfinished({ stages: done, error }: CompilationData): HTMLElement | null {
  if (!error || done.some((stage) => stage.name === error.stage)) return null;
  return h("li", { class: "stage failed", role: "presentation" }, h("span", { class: "number" }, done.length + 1),
    h("span", { class: "name" }, error.stage, chip("failed", "removed")), h("span", { class: "what" }, error.type));
}

/** `forward 210 · backward 340`, with the difference where the stage before had the same graph. */
function nodeCounts(recording: Recording, compilation: CompilationData, stage: StageRecord, index: number): HTMLElement[] {
  return [...stage.graphs].map(([role, graph]) => {
    const nodes = recording.graphValues(compilation, graph).length;
    const before = previousGraph(compilation, index, role);
    const earlier = before?.role === role ? recording.graphValues(compilation, compilation.stages[before.stage]!.graphs.get(role)!).length : undefined;
    const change = earlier === undefined ? 0 : nodes - earlier;
    return h("span", {}, `${role} ${nodes}`, change !== 0 && h("em", { class: change > 0 ? "more" : "less" }, change > 0 ? ` +${change}` : ` −${-change}`));
  });
}
