// The first page of a recording: one sentence, where the time went, what to look at, and the functions. Python writes the
// sentences (aotviz/explain/overview.py); each cause and each function leads to the place that shows it.

import { type Child, h, quoted, replace } from "../../dom";
import { bytes, milliseconds, plural } from "../../format";
import type { State } from "../../state";
import type { CauseRecord, FunctionRecord, OverviewRecord } from "../../wire";
import { showPage } from "../records";
import { chip, table } from "../table";
import { showRestart } from "../timeline";
import type { Context, Mounted, View } from "../view";

const SECOND = 1e9; // nanoseconds
const FIRST = 1.5; // of the title's length: as far as the sentence may reach that says the same
const SMALLEST = 0.005; // of the time; a part of the bar below it has no width of its own

/** What the recording says first, if that is loaded. */
function overviewOf({ recording }: State): OverviewRecord | null | undefined {
  return recording.rows("overview")?.part.overview;
}

export const overview: View = {
  id: "overview",
  title: "Overview",
  isWhole: true,
  applies: ({ recording }) => recording.rowCount("overview") > 0,
  needs: () => [{ what: "rows", kind: "overview" }],
  mount(parent: HTMLElement, { state }: Context): Mounted {
    let shown: unknown;
    const update = (): void => {
      const found = overviewOf(state);
      if (found && found === shown) return;
      shown = found;
      if (found) replace(parent, page(state, found));
    };
    update();
    return { update, destroy() {} };
  },
};

function page(state: State, found: OverviewRecord): HTMLElement {
  return h(
    "div",
    { class: "page overview" },
    h("h2", { class: `headline ${tone(found)}` }, quoted(found.headline)),
    found.times.length > 0 && bar(found),
    found.causes.length > 0 && causes(state, found),
    found.functions.length > 0 && functions(state, found.functions),
    found.remarks.length > 0 &&
      h(
        "section",
        {},
        h("h3", {}, "Remarks"),
        h(
          "ul",
          { class: "remarks" },
          found.remarks.map((text) => h("li", {}, quoted(text))),
        ),
      ),
  );
}

function tone({ healthy, causes: [first] }: OverviewRecord): string {
  if (healthy) return "healthy";
  return first?.failed ? "failed" : "";
}

/** The parts of the time, as wide as they were long. */
function bar({ seconds, times }: OverviewRecord): HTMLElement {
  const shares = times.map((one) => ({ ...one, share: one.seconds / seconds, told: time(one.seconds) }));
  return h(
    "figure",
    { class: "times" },
    h(
      "div",
      { class: "parts", "aria-hidden": "true" },
      shares.map(({ name, share, told }) =>
        h("span", {
          class: "part",
          data: { part: name },
          title: `${name} ${told}`,
          style: `flex-grow:${Math.max(share, SMALLEST)}`,
        }),
      ),
    ),
    h(
      "figcaption",
      {},
      shares.map(({ name, told }) => h("span", { class: "named", data: { part: name } }, name, h("b", {}, told))),
      h("span", { class: "total" }, `= ${time(seconds)}`),
    ),
  );
}

function time(seconds: number): string {
  return milliseconds(seconds * SECOND);
}

/** One line for each cause; the first is open. j and k move from one to the next. */
function causes(state: State, { causes: all, seconds }: OverviewRecord): HTMLElement {
  const list = h(
    "ol",
    { class: "causes" },
    all.map((one, i) => h("li", { data: { kind: one.kind } }, cause(state, one, seconds, i === 0))),
  );
  list.addEventListener("keydown", (event) => {
    const step = { j: 1, k: -1 }[event.key];
    const lines = [...list.querySelectorAll("summary")];
    const at = lines.findIndex((line) => line === event.target);
    if (!step || at < 0) return;
    event.stopPropagation();
    lines[at + step]?.focus();
  });
  return h("section", {}, h("h3", {}, "What to look at"), list);
}

function cause(state: State, one: CauseRecord, total: number, isOpen: boolean): HTMLElement {
  const share = one.seconds && total ? ` · ${Math.round((100 * one.seconds) / total)} %` : "";
  return h(
    "details",
    { open: isOpen },
    h(
      "summary",
      {},
      h("span", { class: "what" }, quoted(one.title)),
      h("span", { class: "of" }, chip(one.kind, one.failed ? "removed" : "warn")),
      one.seconds > 0 && h("span", { class: "cost" }, time(one.seconds), share),
      one.place && h("span", { class: "where" }, one.place, one.code && h("code", {}, one.code)),
    ),
    more(one) && h("p", {}, quoted(more(one))),
    one.followed.length > 0 &&
      h(
        "ul",
        { class: "followed", "aria-label": "What followed from it" },
        one.followed.map((text) => h("li", {}, quoted(text))),
      ),
    one.fix && h("p", { class: "fix" }, h("b", {}, "What to do: "), quoted(one.fix)),
    h("p", { class: "links" }, links(state, one)),
  );
}

/** What a cause says beyond its title, whose reason its first sentence often repeats. */
function more({ title, text }: CauseRecord): string {
  const reason = title.replace(/^.*?: /, "");
  const end = text.indexOf(`${reason}.`) + reason.length + 1;
  return end > reason.length && end <= FIRST * title.length ? text.slice(end).trim() : text;
}

/** Where the recording shows what a cause says. */
function links(state: State, { kind, ids }: CauseRecord): Child[] {
  const positions = ids.map((id) => positionOf(state, id)).filter((position) => position >= 0);
  const [first] = positions;
  const link = (text: string, open: () => void): HTMLElement =>
    h("button", { type: "button", class: "small", on: { click: open } }, text);
  const inList = (): void => {
    if (first !== undefined) state.openCompilation(first);
    state.openView("compilations");
  };
  const page = PAGES[kind];
  if (page && state.recording.rowCount(page.of)) return [link(page.text, () => showPage(state, page.of, ids[0]))];
  if (kind === "restart") return [link("Show the timeline", () => showRestart(state, first))];
  if (first === undefined) return [];
  return ["failed", "eager", "export"].includes(kind)
    ? [link("Show where it ended", () => openFailed(state, first))]
    : [link(`Show ${plural(positions.length, "compilation")}`, inList)];
}

/** The pages of records that show causes of a kind. */
const PAGES: Readonly<Record<string, { readonly of: string; readonly text: string }>> = {
  "graph break": { of: "graph_breaks", text: "Show the graph breaks" },
  ranks: { of: "ranks", text: "Show what differs" },
  cache: { of: "cache_lookups", text: "Show the cache lookups" },
};

function openFailed(state: State, position: number): void {
  state.openCompilation(position, state.recording.index.compilations[position]?.error?.stage);
  if (state.selection.view === overview.id) state.openView("code"); // the stage has no record: it raised
}

function positionOf({ recording }: State, id: string): number {
  return recording.index.compilations.findIndex((one) => one.id === id);
}

function functions(state: State, rows: readonly FunctionRecord[]): HTMLElement {
  return table<FunctionRecord>(
    "Functions",
    [
      {
        title: "Function",
        kind: "code",
        cell: ({ name, after, place }) => [after ? `↳ ${after}` : name, place && h("small", {}, place)],
      },
      {
        title: "Compilations",
        term: "Compilations of it",
        cell: ({ ids, again }) => (again ? `${ids.length} (${again} again)` : String(ids.length)),
      },
      { title: "Time", kind: "number", cell: ({ seconds }) => seconds > 0 && time(seconds) },
      { title: "Nodes", kind: "number", cell: ({ nodes }) => (nodes >= 0 ? nodes : "") },
      { title: "Kept for backward", kind: "number", cell: ({ kept_bytes: kept }) => (kept > 0 ? bytes(kept) : "") },
      { title: "Writes and views", kind: "prose", cell: ({ aliases }) => quoted(aliases) },
      { title: "In eager", kind: "prose", cell: ({ in_eager: why }) => quoted(why) },
    ],
    rows,
    {
      onRow: ({ ids }) => {
        state.openCompilation(positionOf(state, ids.at(-1) ?? ""));
        state.openView("graph");
      },
    },
  );
}
