// The user's inputs and outputs: which share memory, which are mutated, how outputs are rebuilt, and why. A board of
// the storages is above the tables. A torch log or a recording of an older version has only the tables.

import { bring, h, notice, quoted, replace } from "../../dom";
import { dtype, shape, viewStep } from "../../format";
import type { InputRecord, OutputRecord, StorageRecord } from "../../wire";
import { notYet } from "../absent";
import { chip, type Column, reselect, table } from "../table";
import type { Context, Mounted, View } from "../view";
import { onBoard, takeAsked } from "./asked";
import { board } from "./board";

/**
 * Storage groups with more than one input, by their number on the board. Other groups are not shown.
 */
function sharedStorages(inputs: readonly InputRecord[], storages: readonly StorageRecord[]): Map<number, number> {
  const groups = new Map<number, string[]>();
  for (const { name, storage } of inputs) if (storage >= 0) groups.set(storage, [...(groups.get(storage) ?? []), name]);
  const shared = [...groups].filter(([, names]) => names.length > 1);
  return new Map(
    shared.map(([group, names], i) => [
      group,
      storages.length
        ? storages.findIndex(({ tensors }) => tensors.some((tensor) => tensor.names.includes(names[0]!)))
        : i,
    ]),
  );
}

function inputColumns(inputs: readonly InputRecord[], storages: readonly StorageRecord[]): Column<InputRecord>[] {
  const shared = sharedStorages(inputs, storages);
  return [
    { title: "Input", kind: "code", cell: (row) => row.name },
    { title: "Kind", term: "Kind of an input", cell: (row) => row.kind },
    { title: "Tensor", kind: "code", cell: (row) => dtype(row.dtype) + shape(row.shape) },
    { title: "Device", cell: (row) => row.device },
    {
      title: "Autograd",
      kind: "flags",
      cell: (row) => (row.requires_grad ? chip(row.is_leaf ? "grad · leaf" : "grad", "grad") : ""),
    },
    {
      title: "Mutation",
      kind: "flags",
      cell: (row) => [
        row.mutates_data && chip("data", "warn", row.mutation),
        row.mutates_metadata && chip("metadata", "warn", row.mutation),
        row.storage_resized && chip("storage resized", "warn"),
        row.storage_replaced && chip("set_", "warn"),
        row.under_no_grad && chip("under no_grad"),
        row.hidden_from_autograd && chip("hidden from autograd"),
      ],
    },
    {
      title: "Static",
      cell: (row) => (row.static ? "yes" : ""),
    },
    {
      title: "Memory",
      kind: "flags",
      cell: (row) => [
        (shared.get(row.storage) ?? -1) >= 0 &&
          chip(`storage ${shared.get(row.storage)!}`, `storage s${[...shared.keys()].indexOf(row.storage) % 6}`),
        row.duplicate_of !== "" && chip(`same tensor as ${row.duplicate_of}`, "alias"),
        row.synthetic_base !== "" && chip(`view of ${row.synthetic_base}`, "alias"),
      ],
    },
    { title: "Why", kind: "prose", cell: (row) => quoted(row.reason) },
  ];
}

const OUTPUT_COLUMNS: Column<OutputRecord>[] = [
  { title: "Output", kind: "code", cell: (row) => row.name },
  {
    title: "Type",
    kind: "flags",
    cell: (row) => chip(row.output_type, row.output_type === "non_alias" ? "" : "alias"),
  },
  { title: "Tensor", kind: "code", cell: (row) => dtype(row.dtype) + shape(row.shape) },
  { title: "Device", cell: (row) => row.device },
  {
    title: "Autograd",
    kind: "flags",
    cell: (row) => [row.requires_grad && chip("grad", "grad"), row.has_tangent && chip("tangent")],
  },
  { title: "Rebuilt from", kind: "code", cell: (row) => row.base },
  {
    title: "By",
    kind: "code",
    cell: (row) => row.view_chain.map(viewStep).join(""),
  },
  { title: "Why", kind: "prose", cell: (row) => quoted(row.reason) },
];

export const aliasing: View = {
  id: "aliasing",
  title: "Aliasing",
  applies: ({ compilation }) => compilation.kind !== "compiled autograd",
  isEmpty: ({ inputs, outputs, storages }) => !inputs.length && !outputs.length && !storages.length,
  needs: () => [],
  badge: ({ compilation: { inputs, outputs } }) =>
    inputs.length && outputs.length ? `${inputs.length}→${outputs.length}` : "",
  mount(parent: HTMLElement, { state }: Context): Mounted {
    let shown: unknown[] = [];
    let asked = ""; // the row of an input or an output
    const update = (): void => {
      build();
      const wanted = takeAsked(state);
      if (wanted === null) return;
      asked = wanted.name;
      reselect(parent);
      for (const lit of parent.querySelectorAll(".window.lit")) lit.classList.remove("lit");
      const place = onBoard(state.compilation).get(asked)?.join(".");
      const window = parent.querySelector(`.window[data-place="${place}"]`);
      window?.classList.add("lit");
      const row = (wanted.onBoard && window) || parent.querySelector("tr[aria-current]") || window;
      if (row) bring(row, parent);
    };
    const selected = ({ name }: { readonly name: string }): boolean => name === asked;
    const build = (): void => {
      const { inputs, outputs, storages } = state.compilation;
      if (shown[0] === inputs && shown[1] === outputs && shown[2] === storages) return;
      shown = [inputs, outputs, storages];
      if (!inputs.length && !outputs.length) {
        replace(
          parent,
          state.compilation.error || !state.compilation.stages.some(({ name }) => name === "metadata")
            ? notYet(state, "The inputs and outputs are not known")
            : notice("empty", "The function has no tensor inputs and no outputs."),
        );
        return;
      }
      replace(
        parent,
        h(
          "div",
          { class: "page" },
          storages.length > 0 && board(state),
          table(`Inputs (${inputs.length})`, inputColumns(inputs, storages), inputs, { selected }),
          table(`Outputs (${outputs.length})`, OUTPUT_COLUMNS, outputs, { selected }),
        ),
      );
    };
    update();
    return { update, destroy() {} };
  },
};
