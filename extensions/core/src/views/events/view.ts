// Shows what the user's function did with its tensors, in order, and what was made of each event. A click on a row
// selects its node; links lead to the tensor on the board, to the fact, and to the lines of the wrapper.

import { type Child, h, notice, quoted, replace } from "../../dom";
import { plural, viewStep } from "../../format";
import type { State } from "../../state";
import type { Column } from "../table";
import type { LaterMount, Tools } from "../mounted";
import { type Made, matches, noticed, type Row, rowsOf } from "./rows";

const FIRST_RUN = "metadata"; // the stage that ran the function
const MOST_NAMED = 4; // inputs or outputs in the sentence above

export const mountEvents: LaterMount = (parent, { state, search }, tools) => {
  const list = h("div");
  let shown: unknown;
  let rows: readonly Row[] = [];
  let chosen: Row | null = null;
  const choose = (row: Row): void => {
    chosen = row;
    const stage = state.compilation.stages.findIndex(({ name }) => name === FIRST_RUN);
    const role = [...(state.compilation.stages[stage]?.graphs.keys() ?? [])][0];
    if (row.node && role !== undefined) state.openNamed(stage, role, row.node);
    else state.openNode(-1);
  };
  const selected = (row: Row): boolean =>
    state.node ? row.node !== "" && row.node === state.node.name : row === chosen;
  const fill = (): void => {
    const words = search.textIn("events").toLowerCase().match(/\S+/g) ?? [];
    const found = rows.filter((row) => matches(row, words));
    const count = found.length < rows.length ? ` (${found.length} of ${plural(rows.length, "event")})` : "";
    replace(
      list,
      tools.table(`What your function did, in order${count}`, columns(state, tools), found, {
        onRow: choose,
        selected,
      }),
    );
  };
  const update = (): void => {
    const { run } = state.compilation;
    if (run && run === shown) return tools.reselect(parent);
    shown = run;
    if (!run) return replace(parent, absent(state, tools));
    rows = rowsOf(state);
    fill();
    replace(parent, h("div", { class: "page events" }, h("p", { class: "lead" }, lead(rows)), list));
  };
  update();
  return { update, destroy: search.subscribe(fill) };
};

function absent(state: State, { notYet }: Tools): HTMLElement {
  const { log, error, stages } = state.compilation;
  if (log >= 0) return notice("empty", "A log of torch does not say what the function did.");
  if (error || !stages.some(({ name }) => name === FIRST_RUN)) return notYet(state, "The function has not run");
  return notice("empty", "This recording has no events.", "An older aotviz made it. Record the function again.");
}

/** What the caller notices of it, in one or two sentences. */
function lead(rows: readonly Row[]): Child {
  const { changed, views } = noticed(rows);
  return [
    changed.length ? ["The call changes ", names(changed), "."] : "The call changes none of its inputs.",
    " ",
    views.length
      ? [names(views), views.length === 1 ? " shares memory" : " share memory", " with an input or another result."]
      : "Every result has memory of its own.",
  ];
}

function names(all: readonly string[]): Child {
  const some = all.slice(0, all.length > MOST_NAMED ? MOST_NAMED - 1 : MOST_NAMED);
  const words: Child[] = [...some.map((name) => h("code", {}, name))];
  if (some.length < all.length) words.push(plural(all.length - some.length, "other"));
  return words.flatMap((word, i) => [i === 0 ? "" : i === words.length - 1 ? " and " : ", ", word]);
}

function columns(state: State, tools: Tools): Column<Row>[] {
  const { chip, codeText, onBoard, showTensor } = tools;
  const board = onBoard(state.compilation);
  const tensor = (name: string): Child =>
    board.has(name)
      ? link(codeText(name, 14), "show this tensor on the board of storages", () => showTensor(state, name))
      : name && codeText(name, 14);
  return [
    { title: "#", term: "Number of an event", kind: "number", order: (row) => row.number, cell: (row) => row.number },
    {
      title: "What",
      term: "Kind of an event",
      order: (row) => row.what,
      cell: (row) => [row.what, row.mode && h("small", {}, row.mode === "no_grad" ? chip("no_grad") : row.mode)],
    },
    {
      title: "Tensor",
      term: "Tensor of an event",
      kind: "code",
      order: (row) => row.tensor,
      cell: (row) => [tensor(row.tensor), row.of && h("small", {}, "of ", tensor(row.of))],
    },
    {
      title: "Operator",
      term: "Operator of an event",
      kind: "code",
      order: (row) => row.operator,
      cell: (row) => (/^\w+\(/.test(row.operator) ? viewStep(row.operator) : row.operator),
    },
    {
      title: "Your line",
      kind: "code",
      order: (row) => row.source,
      cell: (row) => line(row.source, tools),
    },
    {
      title: "Made of it",
      kind: "prose",
      cell: (row) => row.made.map((one) => fact(state, one, tools)),
    },
  ];
}

function link(text: Child, title: string, go: () => void): HTMLElement {
  const open = (event: Event): void => {
    event.stopPropagation();
    go();
  };
  return h("button", { type: "button", class: "link", title, on: { click: open } }, text);
}

/** `train.py:12` and the code there. */
function line(source: string, { codeText }: Tools): Child {
  const parts = /^(\S+:\d+)[:,]?\s*([^]*)$/.exec(source);
  if (!parts) return source;
  const place = parts[1]!.split(/[\\/]/).pop()!;
  return [h("span", { title: source }, codeText(place)), h("small", { class: "line", title: source }, parts[2])];
}

function fact(state: State, { subject, fact: word, text }: Made, tools: Tools): HTMLElement {
  const { chip, notesAbout, showLines, showRow } = tools;
  const notes = state.compilation.wrapper?.notes ?? [];
  const about = subject ? notesAbout(notes, [subject]) : [];
  return h(
    "div",
    { class: "made" },
    subject &&
      link(h("code", {}, subject), "show why, in the tables of inputs and outputs", () => showRow(state, subject)),
    subject && " ",
    word && [chip(word, word === "non_alias" ? "" : "alias"), " "],
    quoted(text),
    about.length > 0 && [
      " ",
      link(`line ${notes[about[0]!]!.first}`, "show the lines of the wrapper about it", () => showLines(state, about)),
    ],
  );
}
