// Shows what the forward saves for the backward: how much, where it comes from, why it was not recomputed, what is
// recomputed instead, which nodes read it, and whether its memory may be reused. A click goes to the node. The bars
// filter the list.

import { type Child, h, notice, quoted, replace } from "../../dom";
import { bytes, dtype, plural, shape } from "../../format";
import type { Search } from "../../search/search";
import type { State } from "../../state";
import { explained } from "../../terms";
import { notYet } from "../absent";
import { breakable, chip, codeText, type Column, reselect, table } from "../table";
import type { Context, Mounted, View } from "../view";
import { type Fate, type Grouping, knowsReaders, type Row, rowsOf, totals } from "./ledger";
import { bars, inGroup, steps } from "./plot";
import { whatIf } from "./what_if";

const MOST_READERS = 3;
const FATES: Record<Fate, string> = { saved: "alias", shared: "alias", input: "", recomputed: "warn" }; // kinds of chips

function columns(state: State, rows: readonly Row[]): Column<Row>[] {
  const largest = Math.max(1, ...rows.map((row) => row.nbytes ?? 0));
  const named = new Map(rows.map((row) => [row.name, row]));
  return [
    {
      title: "Value",
      term: "Saved value",
      kind: "code",
      order: (row) => row.name,
      cell: (row) => [
        codeText(row.name),
        h("small", {}, codeText(row.kind === "tensor" ? dtype(row.dtype) + shape(row.shape) : row.kind, 16)),
      ],
    },
    {
      title: "Kind",
      kind: "flags",
      term: "Kind of a saved value",
      order: (row) => `${row.fate} ${row.donated ? 0 : 1}`,
      cell: (row) => [
        chip(row.fate, FATES[row.fate]),
        row.fate !== "recomputed" && [
          chip(row.donated ? "donated" : "kept", row.donated ? "added" : "", row.whyDonated),
          row.checked && chip("checked"),
          row.hook && chip("packed", "", row.hook),
        ],
      ],
    },
    {
      title: "Size",
      kind: "number",
      order: (row) => -(row.nbytes ?? Infinity),
      cell: (row) => [bytes(row.nbytes), memory(row, named.get(row.whose)), meter((row.nbytes ?? 0) / largest)],
    },
    {
      title: "Made by",
      kind: "code",
      order: (row) => row.module + row.producer,
      cell: (row) => [codeText(row.producer), row.module && h("small", {}, breakable(row.module))],
    },
    { title: "Source", kind: "code", order: (row) => row.source, cell: (row) => source(row.source) },
    { title: "Why", kind: "prose", order: (row) => row.why, cell: (row) => quoted(row.why) },
    {
      title: "Read by",
      kind: "code",
      order: (row) => row.until,
      cell: (row) => readers(state, row.consumers),
    },
  ];
}

/** For a value in another value's memory, that value. For a value that does not fill its storage, the held bytes. */
function memory(row: Row, owner: Row | undefined): Child {
  if (row.fate === "shared") {
    const where = [owner?.producer, owner?.module && `in ${owner.module}`, owner?.source && `at ${owner.source}`]
      .filter(Boolean)
      .join(" ");
    return h(
      "small",
      {
        title: `This value is in the memory of ${row.whose}${where && ` (${where})`}, which is saved too, and is counted there.`,
      },
      "in ",
      codeText(row.whose, 14),
    );
  }
  if (row.fate === "input")
    return (
      row.whose &&
      h(
        "small",
        { title: `This value is in the memory of ${row.whose}, which the caller holds anyway.` },
        "in ",
        codeText(row.whose, 14),
      )
    );
  return (
    row.cost !== null &&
    row.cost !== row.nbytes &&
    h(
      "small",
      {
        title:
          "The value does not fill its storage exactly: it is a part of a larger storage, or some of its elements share memory. The whole storage is held.",
      },
      `holds ${bytes(row.cost)}`,
    )
  );
}

/** `model.py:12`, and below it as much of the line as fits. */
function source(text: string): Child {
  const parts = /^(\S+:\d+)[:,]?\s*([^]*)$/.exec(text);
  if (!parts) return text;
  return h("span", { title: text }, parts[1]!.split(/[\\/]/).pop(), h("small", { class: "line" }, parts[2]));
}

function readers(state: State, names: readonly string[]): Child {
  if (!names.length) return "";
  const open = (event: Event, name: string): void => {
    event.stopPropagation();
    openNode(state, "backward", name);
  };
  return [
    names.slice(0, MOST_READERS).map((name) =>
      h(
        "button",
        {
          type: "button",
          class: "link",
          on: {
            click: (event: Event) => open(event, name),
            keydown: (event: KeyboardEvent) => event.key === "Enter" && event.stopPropagation(),
          },
        },
        codeText(name, 14),
      ),
    ),
    names.length > MOST_READERS && h("small", { title: names.join(", ") }, `and ${names.length - MOST_READERS} more`),
  ];
}

function meter(part: number): HTMLElement {
  const fill = h("i");
  fill.style.width = `${Math.max(0, Math.min(100, 100 * part)).toFixed(1)}%`;
  return h("span", { class: "meter", "aria-hidden": "true" }, fill);
}

/** Goes to a node of the forward or the backward, in the open stage if that has the graph. */
function openNode(state: State, role: string, name: string): void {
  const { stages } = state.compilation;
  const stage = stages.findIndex((record) => record.graphs.has(role));
  if (stage >= 0)
    state.openNamed(stages[state.selection.stage]?.graphs.has(role) ? state.selection.stage : stage, role, name);
}

export const saved: View = {
  id: "saved",
  title: "Saved tensors",
  applies: ({ compilation }) => compilation.kind !== "compiled autograd",
  isEmpty: ({ saved_tensors }) => !saved_tensors.length,
  needs: () => [],
  badge: ({ compilation }) => String(compilation.saved_tensors.length || ""),
  mount(parent: HTMLElement, { state, search }: Context): Mounted {
    let shown: unknown = null;
    let narrow = (): void => undefined;
    const update = (): void => {
      const { saved_tensors } = state.compilation;
      if (shown === saved_tensors) return reselect(parent);
      shown = saved_tensors;
      narrow = build(parent, state, search);
    };
    update();
    return { update, destroy: search.subscribe(() => narrow()) };
  },
};

/** Returns what lists the rows again when the search changed. */
function build(parent: HTMLElement, state: State, search: Search): () => void {
  const rows = rowsOf(state.compilation).sort((a, b) => (b.nbytes ?? Infinity) - (a.nbytes ?? Infinity) || 0);
  if (!rows.length) {
    replace(parent, nothingSaved(state));
    return () => undefined;
  }
  const [plot, curve, ledger] = [h("div"), h("div"), h("div")];
  const fate = h(
    "select",
    { "aria-label": "Which values" },
    h("option", { value: "" }, "all values"),
    (Object.keys(FATES) as Fate[]).map((name) => h("option", { value: name }, name)),
    h("option", { value: "donated" }, "donated"),
  );
  const inModules = rows.some(({ module }) => module !== "");
  const by = h(
    "select",
    { "aria-label": "Bars by" },
    inModules && h("option", { value: "module" }, "by module"),
    h("option", { value: "producer" }, "by operator"),
  );
  let chosen = "";
  const list = (): void => {
    const text = search.textIn("saved").trim().toLowerCase();
    const found = rows.filter(
      (row) =>
        inGroup(row, by.value as Grouping, chosen) &&
        (fate.value === "" || (fate.value === "donated" ? row.donated : row.fate === fate.value)) &&
        `${row.name} ${row.producer} ${row.module} ${row.source}`.toLowerCase().includes(text),
    );
    replace(
      ledger,
      found.length
        ? table(
            `${plural(found.length, "value")}${found.length < rows.length ? ` of ${rows.length}` : ""}`,
            columns(state, rows),
            found,
            {
              onRow: (row) => openNode(state, row.fate === "recomputed" ? "backward" : "forward", row.name),
              selected: (row) => row.name === state.node?.name,
            },
          )
        : notice("empty", "No value matches.", "Clear the search, or choose all values, to see all."),
    );
  };
  const draw = (): void =>
    replace(
      plot,
      bars(rows, by.value as Grouping, chosen, (name) => {
        chosen = name;
        draw();
        list();
      }),
    );
  const compare = (other: readonly Row[] | null): void =>
    replace(
      curve,
      knowsReaders(rows)
        ? steps(rows, other)
        : notice(
            "empty",
            "It is not known when each value is freed.",
            "This log has no graph of the backward, so the readers of each value are unknown.",
          ),
    );
  fate.addEventListener("change", list);
  by.addEventListener("change", () => {
    chosen = "";
    draw();
    list();
  });
  replace(
    parent,
    h(
      "div",
      { class: "page saved-page" },
      lead(rows),
      h(
        "div",
        { class: "plots" },
        h("figure", {}, h("figcaption", {}, "Held bytes ", by), plot),
        h(
          "figure",
          {},
          h("figcaption", {}, "Held while the backward runs"),
          curve,
          knowsReaders(rows) &&
            h(
              "p",
              { class: "legend-line" },
              key("saved", "saved"),
              key("again", "recomputed"),
              h("span", { class: "faint" }, "inputs cost nothing and are left out"),
            ),
        ),
      ),
      whatIf(state, rows, compare),
      h("div", { class: "filters" }, fate),
      ledger,
    ),
  );
  draw();
  compare(null);
  list();
  return list;
}

function nothingSaved(state: State): HTMLElement {
  const { kind, compile_id, stages } = state.compilation;
  if (kind === "inference")
    return notice(
      "empty",
      "Nothing is saved for a backward.",
      "No input requires grad, or grad mode was off. This is an inference graph and has no backward.",
    );
  const isCut = compile_id !== "" || stages.some(({ name }) => name === "partition");
  return isCut
    ? notice("empty", "Nothing is saved for a backward.", "The backward reads only tangents.")
    : notYet(state, "Forward and backward are not partitioned");
}

function lead(rows: readonly Row[]): HTMLElement {
  const all = totals(rows);
  const inputs = `${plural(all.inputs, "value")} in memory that the caller holds anyway`;
  const saved = [
    all.values > 0 && `${bytes(all.saved)} in ${plural(all.values, "value")}`,
    all.inputs > 0 && (all.values > 0 ? inputs : `only ${inputs}`),
  ].filter(Boolean);
  return h(
    "p",
    { class: "lead" },
    `Saved for the backward: ${saved.join(", and ") || "nothing"}`,
    all.donated > 0 && `; the backward may overwrite ${bytes(all.donated)}`,
    all.recomputed > 0 &&
      `; ${plural(all.recomputed, "value")} (${bytes(all.spared)}) ${all.recomputed === 1 ? "is" : "are"} recomputed`,
    ".",
  );
}

function key(kind: string, text: string): HTMLElement {
  return h("span", { class: "key", ...explained("colours", text) }, h("i", { class: kind }), text);
}
