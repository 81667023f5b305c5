// What the forward keeps for the backward: how much, from where, why it was not recomputed, and whether its memory
// may be reused. A click goes to the node in the forward graph.

import { type Child, h, notice, replace } from "../../dom";
import { bytes, dtype, plural, shape } from "../../format";
import type { State } from "../../state";
import type { SavedTensorRecord } from "../../wire";
import { chip, codeText, type Column, table } from "../table";
import type { Context, Mounted, View } from "../view";

function columns(largest: number): Column<SavedTensorRecord>[] {
  return [
    { title: "Value", kind: "code", cell: (row) => row.name },
    { title: "Tensor", kind: "code", cell: (row) => (row.kind === "tensor" ? dtype(row.dtype) + shape(row.shape) : row.kind) },
    { title: "Size", kind: "number", cell: (row) => [bytes(row.nbytes), meter((row.nbytes ?? 0) / largest)] },
    { title: "Made by", kind: "code", hint: "the operator or input, and its module", cell: (row) => [codeText(row.producer), row.module && h("small", {}, row.module)] },
    { title: "Source", kind: "code", cell: (row) => source(row.source) },
    { title: "Why saved", kind: "prose", cell: (row) => row.why },
    {
      title: "Memory", kind: "flags", hint: "donated: the backward may overwrite it; checked: that nobody wrote to it in between",
      cell: (row) => [chip(row.donated ? "donated" : "kept", row.donated ? "added" : "", row.why_donated), row.version_checked && chip("checked", "", "its version is checked before the backward"), row.hook && chip("packed", "", row.hook)],
    },
  ];
}

/** `model.py:12` and, below it, as much of the line as there is room for. */
function source(text: string): Child {
  const parts = /^(\S+:\d+)[:,]?\s*([^]*)$/.exec(text);
  if (!parts) return text;
  return h("span", { title: text }, parts[1]!.split(/[\\/]/).pop(), h("small", { class: "line" }, parts[2]));
}

function meter(part: number): HTMLElement {
  const fill = h("i");
  fill.style.width = `${Math.max(0, Math.min(100, 100 * part)).toFixed(1)}%`;
  return h("span", { class: "meter", "aria-hidden": "true" }, fill);
}

function openInForward(state: State, name: string): void {
  const { stages } = state.compilation;
  const stage = stages.findIndex((record) => record.graphs.has("forward"));
  if (stage < 0) return;
  state.openNamed(stages[state.selection.stage]?.graphs.has("forward") ? state.selection.stage : stage, "forward", name);
}

export const saved: View = {
  id: "saved",
  title: "Saved tensors",
  needs: () => [],
  badge: ({ compilation }) => String(compilation.saved_tensors.length || ""),
  mount(parent: HTMLElement, { state }: Context): Mounted {
    let shown = "";
    const update = (): void => {
      const key = `${state.selection.compilation} ${state.node?.name ?? ""}`;
      if (shown === key) return;
      shown = key;
      const rows = [...state.compilation.saved_tensors].sort((a, b) => (b.nbytes ?? Infinity) - (a.nbytes ?? Infinity) || 0);
      if (!rows.length) {
        replace(parent, notice("empty", "Nothing is saved for a backward.",
          state.compilation.kind === "training" ? "The backward needs only its own inputs." : "This is an inference graph: it has no backward."));
        return;
      }
      const total = rows.reduce((sum, row) => sum + (row.nbytes ?? 0), 0);
      const donated = rows.filter((row) => row.donated);
      const largest = Math.max(1, ...rows.map((row) => row.nbytes ?? 0));
      replace(parent, h("div", { class: "page" },
        h("p", { class: "lead" }, `${bytes(total)} in ${plural(rows.length, "value")}`, donated.length > 0 && `, of which the backward may reuse ${bytes(donated.reduce((sum, row) => sum + (row.nbytes ?? 0), 0))}`, "."),
        table("Saved for backward, largest first", columns(largest), rows, {
          onRow: (row) => openInForward(state, row.name), selected: (row) => row.name === state.node?.name,
        })));
    };
    update();
    return { update, destroy() {} };
  },
};
