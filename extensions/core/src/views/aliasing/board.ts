// The board has one card per storage. It shows the tensors in the storage, the views between them, the writes in their
// order, and the lines of the wrapper that handle them. A click goes to the node or to those lines.

import { type Child, h, quoted } from "../../dom";
import { bytes, plural, shape, viewStep } from "../../format";
import type { State } from "../../state";
import { explained } from "../../terms";
import type { AliasTensor, InputRecord, StorageRecord, StorageWrite } from "../../wire";
import { chip } from "../table";
import { notesAbout, showLines } from "../wrapper/lines";
import { chains, overlap } from "./geometry";
import { tensorKey, writeKey } from "./rows";
import { numbered, strip } from "./strip";

const ROLES: Record<string, string> = {
  base: "synthetic base",
  input: "input",
  output: "output",
  intermediate: "intermediate",
};
const MOST_CARDS = 200; // more would be unreadable
const MOST_ALONE = 2000;
const MOST_TENSORS = 400; // of one storage, as many as the recorder keeps
const MOST_WRITES = 400;
const FIRST_RUN = "metadata"; // the stage whose graph has the user's own statements

/** How a board is shown beside others. */
export interface Beside {
  readonly everything: boolean; // whether quiet storages have cards too
  readonly lit: ReadonlySet<string>; // keys (rows.ts) of the rows to mark
}

const ALONE: Beside = { everything: false, lit: new Set() };

export function board(state: State, beside = ALONE): HTMLElement {
  const { storages } = state.compilation;
  const hasCard = (storage: StorageRecord): boolean => beside.everything || isOfInterest(storage);
  const cards = storages.map((storage, i) => ({ storage, i })).filter(({ storage }) => hasCard(storage));
  const quiet = storages.filter((storage) => !hasCard(storage));
  const tensors = storages.reduce((sum, storage) => sum + storage.tensors.length, 0);
  const writes = storages.reduce((sum, storage) => sum + storage.writes.length, 0);
  return h(
    "section",
    { class: "board", "aria-label": "Storages" },
    h(
      "p",
      { class: "lead" },
      `${plural(tensors, "tensor")} in ${plural(storages.length, "storage")}, ${writes ? plural(writes, "in-place write") : "no in-place write"}.`,
    ),
    cards.length > 0 &&
      legend(
        cards.flatMap(({ storage }) => storage.tensors),
        writes > 0,
      ),
    h(
      "div",
      { class: "cards" },
      cards.slice(0, MOST_CARDS).map(({ storage, i }) => card(state, readable(storage), i, beside.lit)),
    ),
    cards.length > MOST_CARDS &&
      h(
        "p",
        { class: "muted" },
        `and ${plural(cards.length - MOST_CARDS, "more storage", "more storages")}, in compilation.storages`,
      ),
    quiet.length > 0 && alone(quiet),
  );
}

/** The legend of the strips' colours that occur; each strip also has its meaning as text. */
function legend(tensors: readonly AliasTensor[], written: boolean): HTMLElement {
  const roles = Object.keys(ROLES).filter((role) => tensors.some((tensor) => tensor.role === role));
  const key = (kind: string, text: string): HTMLElement =>
    h("span", { class: "key", ...explained("colours", text) }, h("i", { class: kind, "aria-hidden": "true" }), text);
  return h(
    "p",
    { class: "strip-keys muted" },
    "Each row is a tensor, and its strip is the storage that it is in:",
    roles.map((role) => key(role, ROLES[role]!)),
    written && key("written", "written in place"),
  );
}

/** The part of a storage that is shown. */
function readable(storage: StorageRecord): StorageRecord {
  const tensors = storage.tensors.slice(0, MOST_TENSORS);
  const writes = storage.writes.filter(({ tensor }) => tensor < tensors.length).slice(0, MOST_WRITES);
  const left = storage.tensors.length + storage.writes.length - tensors.length - writes.length;
  return left ? { ...storage, tensors, writes, left_out: storage.left_out + left } : storage;
}

/** Storages with more than one tensor, or with a write. */
function isOfInterest(storage: StorageRecord): boolean {
  return storage.tensors.length > 1 || storage.writes.length > 0 || (storage.tensors[0]?.names.length ?? 0) > 1;
}

function alone(storages: readonly StorageRecord[]): HTMLElement {
  const inputs = storages.filter(({ tensors }) => tensors[0]?.role === "input").length;
  const words = [
    inputs && plural(inputs, "input"),
    storages.length - inputs && plural(storages.length - inputs, "output"),
  ]
    .filter(Boolean)
    .join(" and ");
  return h(
    "details",
    { class: "alone" },
    h("summary", {}, `${words} with memory of ${storages.length === 1 ? "its" : "their"} own, never written in place`),
    h(
      "ul",
      {},
      storages
        .slice(0, MOST_ALONE)
        .map(({ tensors, nbytes }) =>
          h(
            "li",
            {},
            h("code", {}, tensors[0]?.names.join(" = ") || tensors[0]?.node),
            h("span", { class: "faint" }, ` ${bytes(nbytes)}`),
          ),
        ),
      storages.length > MOST_ALONE &&
        h("li", { class: "muted" }, `and ${plural(storages.length - MOST_ALONE, "other")}`),
    ),
  );
}

function card(state: State, storage: StorageRecord, index: number, lit: ReadonlySet<string>): HTMLElement {
  const { compilation } = state;
  const notes = compilation.wrapper?.notes ?? [];
  const names = storage.tensors.flatMap((tensor) => tensor.names);
  const about = notesAbout(notes, names);
  const written = new Set(storage.writes.filter(({ kind }) => kind === "data").map(({ tensor }) => tensor));
  return h(
    "article",
    { class: "card", data: { storage: String(index) }, "aria-label": `Storage ${index}` },
    h(
      "header",
      {},
      h("h3", {}, `storage ${index}`),
      h("span", { class: "faint" }, `${bytes(storage.nbytes)} · ${storage.device}`),
      storage.tensors.some(({ role }) => role === "base") && chip("synthetic base", "alias"),
      duplicates(compilation.inputs, names).map((name) => chip(`${name} twice`, "alias")),
    ),
    h(
      "ol",
      { class: "windows" },
      chains(storage.tensors).map(({ index: i, depth }) =>
        row(state, storage, storage.tensors[i]!, `${index}.${i}`, depth, written.has(i), lit),
      ),
    ),
    storage.left_out > 0 &&
      h(
        "p",
        { class: "muted" },
        `and ${plural(storage.left_out, "more tensor or write", "more tensors and writes")} that are not shown`,
      ),
    storage.writes.length > 0 &&
      h(
        "section",
        {},
        h("h4", {}, "In-place writes, in their order"),
        h(
          "ol",
          { class: "writes" },
          storage.writes.map((write, number) => writeLine(state, storage, write, number + 1, lit)),
        ),
        landing(compilation.inputs, names),
      ),
    about.length > 0 &&
      h(
        "section",
        {},
        h("h4", {}, "In the wrapper"),
        h(
          "ul",
          { class: "enforced" },
          about.map((note) =>
            h(
              "li",
              {},
              h(
                "button",
                {
                  type: "button",
                  class: "link",
                  title: "show this line of the wrapper",
                  on: { click: () => showLines(state, [note]) },
                },
                `line ${notes[note]!.first}`,
              ),
              h("span", {}, quoted(notes[note]!.fact)),
            ),
          ),
        ),
      ),
  );
}

function row(
  state: State,
  storage: StorageRecord,
  tensor: AliasTensor,
  place: string,
  depth: number,
  written: boolean,
  lit: ReadonlySet<string>,
): HTMLElement {
  const cells = numbered(storage, tensor);
  const name = tensor.names.join(" = ") || tensor.node || "unnamed";
  const item = h(
    "li",
    {
      class: `window ${tensor.role}${lit.has(tensorKey(tensor.names[0] ?? tensor.node)) ? " lit" : ""}`,
      data: { place },
    },
    h(
      "div",
      { class: "who" },
      h(
        "span",
        { class: "name" },
        depth > 0 && h("i", { class: "branch", "aria-hidden": "true" }, "└"),
        origin(state, tensor, name),
        h("span", { class: "role" }, ROLES[tensor.role] ?? tensor.role),
      ),
      tensor.step && h("code", { class: "step", title: tensor.source }, viewStep(tensor.step)),
    ),
    h(
      "div",
      { class: "where" },
      strip(storage, tensor, written) ??
        h("span", { class: "faint" }, storage.nbytes === 0 ? "no bytes" : "its position is symbolic"),
      cells.length > 0 &&
        h(
          "div",
          { class: "cells", "aria-hidden": "true" },
          cells.map((cell) => h("span", {}, cell ?? "")),
        ),
    ),
    h(
      "code",
      { class: "layout" },
      `${shape(tensor.shape)}`,
      h(
        "small",
        {},
        tensor.stride.length > 0 && `stride ${shape(tensor.stride)}`,
        tensor.offset !== 0 && ` offset ${tensor.offset}`,
      ),
    ),
  );
  item.style.setProperty("--depth", String(Math.min(depth, 6)));
  return item;
}

/** The name, as a link if there is a node. */
function origin(state: State, tensor: AliasTensor, name: string): Child {
  const go = nodeLink(state, tensor.node);
  return go
    ? h("button", { type: "button", class: "link", title: tensor.source || undefined, on: { click: go } }, name)
    : h("code", {}, name);
}

/** Goes to a node of the graph that was traced from the user's statements. */
function nodeLink(state: State, node: string): (() => void) | null {
  const stage = state.compilation.stages.findIndex((record) => record.name === FIRST_RUN);
  const role = [...(state.compilation.stages[stage]?.graphs.keys() ?? [])][0];
  if (node === "" || role === undefined) return null;
  return () => {
    state.openView("code");
    state.openNamed(stage, role, node);
  };
}

function writeLine(
  state: State,
  storage: StorageRecord,
  write: StorageWrite,
  number: number,
  lit: ReadonlySet<string>,
): HTMLElement {
  const tensor = storage.tensors[write.tensor]!;
  const seen = storage.tensors
    .filter(
      (other) => other !== tensor && other.role === "input" && write.kind === "data" && overlap(other, tensor) === true,
    )
    .flatMap((other) => other.names.slice(0, 1));
  const go = nodeLink(state, write.node);
  const key = writeKey(number, write.operator, tensor.names[0] ?? tensor.node);
  return h(
    "li",
    { class: lit.has(key) ? "lit" : undefined },
    h("span", { class: "number" }, number),
    h(
      "span",
      {},
      h("code", {}, write.operator),
      write.kind === "metadata" ? " changes the metadata of " : " writes ",
      h("code", {}, tensor.names[0] ?? (tensor.node || "an intermediate")),
      seen.length > 0 && [", which ", h("code", {}, seen.join(", ")), seen.length === 1 ? " sees" : " see"],
    ),
    !write.grad_mode && chip("no_grad"),
    write.source && h("small", { title: write.source }, place(write.source)),
    go && h("button", { type: "button", class: "link", on: { click: go } }, write.node),
  );
}

/** `train.py:12 x.add_(1)`: the file name without its folders. */
function place(source: string): string {
  const parts = /^(\S+:\d+)[:,]?\s*([^]*)$/.exec(source);
  return parts ? `${parts[1]!.split(/[\\/]/).pop()} ${parts[2]}` : source;
}

/** What happens to the new contents. */
function landing(inputs: readonly InputRecord[], names: readonly string[]): HTMLElement {
  const mine = inputs.filter(({ name, mutation }) => names.includes(name) && mutation !== "NOT_MUTATED");
  const inside = mine.some(({ mutation }) => mutation === "MUTATED_IN_GRAPH");
  const text = !mine.length
    ? "This memory is used only within the call. In the graph each write is a new value."
    : inside
      ? "The compiled graph writes the caller's tensor itself."
      : "In the graph each write is a new value. The wrapper then copies the last one into the caller's tensor.";
  return h("p", { class: "muted" }, text);
}

function duplicates(inputs: readonly InputRecord[], names: readonly string[]): string[] {
  return inputs
    .filter(({ name, duplicate_of }) => duplicate_of !== "" && names.includes(name))
    .map(({ duplicate_of }) => duplicate_of);
}
