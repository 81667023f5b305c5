// Lists all compilations of the recording, with search, filters and sorting. A click opens one. The reader can compare
// two of them: their stages, and the facts that differ.

import { answered, answeredInFull, colourOfAnswer } from "../../cached";
import { h, quoted, replace } from "../../dom";
import { milliseconds } from "../../format";
import { related } from "../../related";
import { colourOf, inShort } from "../../outcome";
import type { Need } from "../../model";
import { chip } from "../table";
import type { Context, Mounted, View } from "../view";
import { comparison } from "./comparison";
import { EVERYTHING, list, type Order, type Query, type Row } from "./list";

const MOST_ROWS = 500;

export const compilations: View = {
  id: "compilations",
  title: "Compilations",
  badge: ({ recording }) => String(recording.index.compilations.length),
  needs({ selection }): Need[] {
    return selection.against ? [{ what: "compilation", compilation: selection.against.compilation }] : [];
  },
  mount(parent: HTMLElement, { state }: Context): Mounted {
    let heads = state.recording.index.compilations;
    let query: Query = EVERYTHING;
    const search = h("input", {
      type: "search",
      placeholder: "Name, id, guard, error",
      "aria-label": "Search the compilations",
      spellcheck: "false",
    });
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
    search.addEventListener("input", () => ask({ text: search.value }));

    const columns: readonly { title: string; by?: Order; hint?: string }[] = [
      { title: "Id", by: "order" },
      { title: "Function", by: "name" },
      ...(ranks.length > 1 ? [{ title: "Rank", by: "rank" as const }] : []),
      { title: "Kind" },
      { title: "Stages", by: "stages" },
      { title: "Nodes", by: "nodes", hint: "of the compilation's largest graph" },
      { title: "Time", by: "time", hint: "of all stages" },
      ...(asked ? [{ title: "Cache", hint: "what aotviz's cache said" }] : []),
      { title: "Why", hint: "why no existing program matched the call" },
      { title: "A/B", hint: "compare with the open compilation" },
    ];
    const heading = ({ title, by, hint }: (typeof columns)[number]): HTMLElement => {
      if (!by) return h("th", { scope: "col", title: hint }, title);
      const mine = query.by === by;
      return h(
        "th",
        { scope: "col", title: hint, "aria-sort": mine ? (query.down ? "descending" : "ascending") : "none" },
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
        h("th", { scope: "row", class: "code" }, one.id),
        h("td", { class: "code" }, one.name),
        ranks.length > 1 && h("td", { class: "number" }, one.rank),
        h("td", {}, one.kind, one.attempts > 1 && chip(`${one.attempts} attempts`)),
        h("td", { class: "number" }, known(one.stages)),
        h("td", { class: "number" }, known(one.nodes)),
        h("td", { class: "number" }, known(one.elapsed_ns, milliseconds(one.elapsed_ns))),
        asked &&
          h("td", {}, one.cache && chip(answered(one.cache), colourOfAnswer(one.cache), answeredInFull(one.cache))),
        h(
          "td",
          { class: "prose" },
          one.error && chip(inShort(one.error), colourOf(one.error), one.error.message),
          one.error?.ran_in_eager && quoted(one.error.message),
          quoted(one.because[0] ?? firstReason(position)),
        ),
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
                      state.compareWith(selection.against?.compilation === position ? null : { compilation: position });
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
    const firstReason = (position: number): string =>
      related(state.recording.index, position).some(({ kind }) => kind === "of")
        ? "a gradient of a gradient was requested"
        : "";
    const draw = (): void => {
      const rows = list(heads, query);
      count.textContent = rows.length === heads.length ? "" : `${rows.length} of ${heads.length}`;
      replace(head, columns.map(heading));
      replace(
        body,
        rows.slice(0, MOST_ROWS).map(line),
        rows.length > MOST_ROWS &&
          h(
            "tr",
            {},
            h(
              "td",
              { colspan: columns.length, class: "muted" },
              `and ${rows.length - MOST_ROWS} more: the search finds them`,
            ),
          ),
        !rows.length &&
          h(
            "tr",
            {},
            h(
              "td",
              { colspan: columns.length, class: "muted" },
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
        search,
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
    const update = (): void => {
      const { compilation, against } = state.selection;
      const key = JSON.stringify([compilation, against, state.compilation.stages.length]);
      if (shown === key && heads === state.recording.index.compilations) return;
      heads = state.recording.index.compilations;
      shown = key;
      draw();
      replace(place, against && against.compilation !== compilation && comparison(state, against.compilation));
    };
    update();
    return { update, destroy() {} };
  },
};
