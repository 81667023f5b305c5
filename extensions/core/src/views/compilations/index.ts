// Lists all compilations of the recording, with search, filters and sorting. A click opens one. The reader can compare
// two of them: their stages, and the facts that differ.

import { calledIn } from "../../called";
import { answered, answeredInFull, colourOfAnswer } from "../../cached";
import { h, quoted, replace } from "../../dom";
import { milliseconds } from "../../format";
import { related } from "../../related";
import { colourOf, inShort } from "../../outcome";
import type { Need, Recording } from "../../model";
import type { CompilationHead } from "../../wire";
import { explained } from "../../terms";
import { chip } from "../table";
import type { Context, Mounted, View } from "../view";
import { comparison } from "./comparison";
import { EVERYTHING, list, type Order, type Query, type Row } from "./list";

const MOST_ROWS = 500;
const MOST_FILLED = 40; // compilations of a log that are read to fill their columns

export const compilations: View = {
  id: "compilations",
  title: "Compilations",
  isWhole: true,
  badge: ({ recording }) => String(recording.index.compilations.length),
  needs({ selection }): Need[] {
    if (!selection.against) return [];
    return [
      { what: "compilation", compilation: selection.against.compilation },
      { what: "rows", kind: "why" },
    ];
  },
  mount(parent: HTMLElement, { state, search }: Context): Mounted {
    let heads = headsOf(state.recording);
    let query: Query = { ...EVERYTHING, text: search.textIn("compilations") };
    const count = h("output", { class: "muted", "aria-live": "polite" });
    const body = h("tbody", {});
    const head = h("tr", {});
    const place = h("div", {});
    const ranks = [...new Set(heads.map(({ rank }) => rank))].sort((a, b) => a - b);
    const asked = heads.some(({ cache }) => cache);
    const kinds = [...new Set(heads.map(({ kind }) => kind).filter((kind) => kind))];
    const ask = (change: Partial<Query>): void => {
      query = { ...query, ...change };
      draw();
    };
    const choice = (label: string, options: readonly (readonly [string, Partial<Query>])[]): HTMLElement | null => {
      if (options.length < 3) return null;
      const select = h(
        "select",
        { "aria-label": label },
        options.map(([text], i) => h("option", { value: i }, text)),
      );
      select.addEventListener("change", () => ask(options[Number(select.value)]![1]));
      return select;
    };
    const unsubscribe = search.subscribe(() => ask({ text: search.textIn("compilations") }));

    let hasKinds = false;
    let isTold = false; // why one of them was compiled, or how it ended
    const columns = (): readonly { title: string; by?: Order; term?: string }[] => [
      { title: "Compilation", by: "order" },
      ...(ranks.length > 1 ? [{ title: "Rank", by: "rank" as const }] : []),
      ...(hasKinds ? [{ title: "Kind", term: "Kind of a compilation" }] : []),
      { title: "Stages", by: "stages" },
      { title: "Nodes", by: "nodes" },
      { title: "Time", by: "time" },
      ...(asked ? [{ title: "Cache", term: "What the cache said" }] : []),
      ...(isTold ? [{ title: "Why" }] : []),
      ...(heads.length > 1 ? [{ title: "A/B" }] : []),
    ];
    const heading = ({ title, by, term }: ReturnType<typeof columns>[number]): HTMLElement => {
      if (!by) return h("th", { scope: "col", ...explained("columns", term ?? title) }, title);
      const mine = query.by === by;
      return h(
        "th",
        {
          scope: "col",
          ...explained("columns", term ?? title),
          "aria-sort": mine ? (query.down ? "descending" : "ascending") : "none",
        },
        h(
          "button",
          { type: "button", class: "sort", on: { click: () => ask({ by, down: mine && !query.down }) } },
          title,
        ),
      );
    };
    const line = ({ head: one, position }: Row): HTMLElement => {
      const { selection } = state;
      const open = (): void => state.openCompilation(position);
      const known = (n: number, text = String(n)): string => (n > 0 ? text : "");
      const row = h(
        "tr",
        {
          class: "link",
          tabindex: "0",
          "aria-selected": String(position === selection.compilation),
          data: { compilation: one.id },
        },
        h("th", { scope: "row", class: "code" }, calledIn(one)),
        ranks.length > 1 && h("td", { class: "number" }, one.rank),
        hasKinds && h("td", {}, one.kind, one.attempts > 1 && chip(`${one.attempts} attempts`)),
        h("td", { class: "number" }, known(one.stages)),
        h("td", { class: "number" }, known(one.nodes)),
        h("td", { class: "number" }, known(one.elapsed_ns, milliseconds(one.elapsed_ns))),
        asked &&
          h("td", {}, one.cache && chip(answered(one.cache), colourOfAnswer(one.cache), answeredInFull(one.cache))),
        isTold &&
          h(
            "td",
            { class: "prose" },
            one.error && chip(inShort(one.error), colourOf(one.error), one.error.message),
            one.error?.ran_in_eager && quoted(one.error.message),
            quoted(reason(position)),
          ),
        heads.length > 1 &&
          h(
            "td",
            {},
            position === selection.compilation
              ? h("span", { class: "faint" }, "open")
              : h(
                  "button",
                  {
                    type: "button",
                    class: "small",
                    "aria-pressed": String(selection.against?.compilation === position),
                    on: {
                      click: (event: Event) => {
                        event.stopPropagation();
                        state.compareWith(
                          selection.against?.compilation === position ? null : { compilation: position },
                        );
                      },
                    },
                  },
                  "compare",
                ),
          ),
      );
      row.addEventListener("click", open);
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && event.target === row) open();
      });
      return row;
    };
    const reason = (position: number): string =>
      state.recording.why(position) ||
      (related(state.recording.index, position).some(({ kind }) => kind === "of")
        ? "a gradient of a gradient was requested"
        : "");
    const draw = (): void => {
      const rows = list(heads, query);
      hasKinds = heads.some(({ kind, attempts }) => kind || attempts > 1);
      isTold = heads.some(({ error }, position) => error || reason(position));
      count.textContent = rows.length === heads.length ? "" : `${rows.length} of ${heads.length}`;
      replace(head, columns().map(heading));
      replace(
        body,
        rows.slice(0, MOST_ROWS).map(line),
        rows.length > MOST_ROWS &&
          h(
            "tr",
            {},
            h(
              "td",
              { colspan: columns().length, class: "muted" },
              `and ${rows.length - MOST_ROWS} more: the search finds them`,
            ),
          ),
        !rows.length &&
          h(
            "tr",
            {},
            h(
              "td",
              { colspan: columns().length, class: "muted" },
              "No compilation matches. Clear the search, or choose another filter.",
            ),
          ),
      );
    };
    replace(
      parent,
      h(
        "div",
        { class: "bar" },
        choice("Kind", [["any kind", { kind: "" }], ...kinds.map((kind) => [kind, { kind }] as const)]),
        choice("Rank", [["any rank", { rank: null }], ...ranks.map((rank) => [`rank ${rank}`, { rank }] as const)]),
        heads.some(({ because, error, cache }) => because.length || error || cache) &&
          choice("Which", [
            ["all", { only: "all" }],
            ["compiled again", { only: "again" }],
            ["failed", { only: "failed" }],
            ["ran in eager", { only: "eager" }],
            ...(asked
              ? ([
                  ["from the cache", { only: "hit" }],
                  ["not from the cache", { only: "missed" }],
                ] as const)
              : []),
          ]),
        count,
      ),
      h(
        "div",
        { class: "page" },
        place,
        h("div", { class: "table compilations" }, h("table", {}, h("thead", {}, head), body)),
      ),
    );

    let shown = "";
    let filled: unknown = null; // the index whose unknown columns are being filled
    let gone = false;
    const fill = async (): Promise<void> => {
      const { recording } = state;
      filled = recording.index;
      const unknown = recording.index.compilations.flatMap(({ stages }, i) => (stages ? [] : [i]));
      let isNew = false;
      for (const compilation of unknown.slice(0, MOST_FILLED)) {
        const coming = recording.load([{ what: "compilation", compilation }]);
        if (!coming) continue;
        await coming.catch(() => undefined); // then its columns stay empty
        if (gone || filled !== recording.index) return;
        isNew = true;
      }
      if (isNew) state.arrived();
    };
    const update = (): void => {
      const { recording } = state;
      const { compilation, against } = state.selection;
      const now = headsOf(recording);
      const opened = now.filter(({ stages }) => stages > 0).length;
      const whys = recording.rows("why")?.part.why.length;
      const key = JSON.stringify([compilation, against, state.compilation.stages.length, opened, whys]);
      if (filled !== recording.index) void fill();
      if (shown === key && indexShown === recording.index) return;
      indexShown = recording.index;
      heads = now;
      shown = key;
      draw();
      replace(place, against && against.compilation !== compilation && comparison(state, against.compilation));
    };
    let indexShown: unknown = null;
    update();
    return {
      update,
      destroy() {
        unsubscribe();
        gone = true;
      },
    };
  },
};

/** The heads of all compilations. What a log's head does not say is known when the compilation is loaded. */
function headsOf(recording: Recording): CompilationHead[] {
  return recording.index.compilations.map((head, position) => {
    const data = recording.compilation(position);
    if (head.stages || !data.stages.length) return head;
    const graphs = data.stages.flatMap(({ graphs: numbers }) => [...numbers.values()]);
    return {
      ...head,
      stages: data.stages.length,
      elapsed_ns: data.stages.reduce((sum, { elapsed_ns }) => sum + elapsed_ns, 0),
      nodes: graphs.reduce((most, number) => Math.max(most, recording.graphValues(data, number).length), 0),
    };
  });
}
