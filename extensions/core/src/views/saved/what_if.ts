// What if the graph were partitioned in another way? A live kernel answers with another compilation, which is shown
// beside this one. A recording from a file has no live program, so it cannot answer.

import { type Child, h, keepInView, notice, quoted, replace } from "../../dom";
import { bytes, plural, thousands } from "../../format";
import type { State } from "../../state";
import { explained } from "../../terms";
import { onlyIn, type Row, rowsOf, type Totals, totals } from "./ledger";

const CANCELLED = "It was cancelled."; // the message of aotviz/widgets/replies.py

const PARTITIONERS = [
  ["", "the same partitioner"],
  ["default_partition", "default_partition"],
  ["min_cut_rematerialization_partition", "min_cut_rematerialization_partition"],
] as const;
const METRICS: readonly (readonly [string, (found: Totals) => number, boolean, "welcome"?])[] = [
  // title, number, whether it is bytes, whether more is better
  ["saved for the backward", ({ saved }) => saved, true],
  ["saved values", ({ values }) => values, false],
  ["peak while the backward runs", ({ peak }) => peak, true],
  ["donated", ({ donated }) => donated, true, "welcome"],
  ["recomputed values", ({ recomputed }) => recomputed, false],
  ["memory that recomputing avoids", ({ spared }) => spared, true, "welcome"],
];

/** The form and its answer. `compare` is called with the rows of the other partition, or null. */
export function whatIf(
  state: State,
  mine: readonly Row[],
  compare: (other: readonly Row[] | null) => void,
): HTMLElement {
  const answer = h("div", { class: "answer", "aria-live": "polite" });
  const partitioner = h(
    "select",
    { "aria-label": "Partitioner" },
    PARTITIONERS.map(([value, title]) => h("option", { value }, title)),
  );
  const share = h("input", {
    type: "range",
    min: "0",
    max: "100",
    step: "5",
    value: "100",
    "aria-label": "Memory budget in percent",
  });
  const says = h("output", {}, "100 %");
  share.addEventListener("input", () => (says.textContent = `${share.value} %`));
  let turn = 0;

  const say = (...children: Child[]): void => {
    replace(answer, ...children);
    const scroller = answer.closest(".view");
    if (scroller) keepInView(scroller, answer);
  };
  const run = (): void => {
    const mineTurn = ++turn;
    const wish = { partition_fn: partitioner.value, memory_budget: Number(share.value) / 100 };
    const abort = new AbortController();
    const stage = h("span", {}, "Waiting for the kernel. It starts when no cell is running … ");
    const coming = state.recording.whatIf(state.selection.compilation, wish, {
      signal: abort.signal,
      onStage: (name) =>
        (stage.textContent = `The kernel is partitioning the graph again. It runs the stage ${name} … `),
    });
    if (!coming) return;
    const started = performance.now();
    const clock = h("span", { class: "muted" });
    const timer = setInterval(
      () => (clock.textContent = `${((performance.now() - started) / 1000).toFixed(0)} s `),
      1000,
    );
    say(
      h(
        "p",
        { role: "status" },
        stage,
        clock,
        button("Cancel", () => {
          abort.abort();
          clearInterval(timer);
          say(h("p", { role: "status" }, "Cancelled. The kernel stops before its next stage."));
        }),
      ),
    );
    const end = (...children: Child[]): void => {
      clearInterval(timer);
      if (mineTurn === turn) say(...children);
    };
    coming.then(
      (data) => {
        if (abort.signal.aborted)
          return end(
            h("p", { class: "muted" }, "Cancelled. The kernel had already finished, and its answer is not shown."),
          );
        const other = rowsOf(data);
        if (mineTurn === turn) compare(other);
        end(
          comparison(mine, other),
          button("Close the comparison", () => {
            replace(answer);
            compare(null);
          }),
        );
      },
      (error: unknown) => {
        const said = error instanceof Error ? error.message : String(error);
        if (!abort.signal.aborted) return end(notice("error", "The graph could not be partitioned again.", said));
        end(h("p", { class: "muted" }, "Cancelled. ", quoted(said === CANCELLED ? "The kernel has stopped." : said)));
      },
    );
  };

  const body = state.compilation.compile_id
    ? h(
        "p",
        { class: "muted" },
        "Torch partitioned this graph. To try another partition, compile the function with ",
        h("code", {}, 'torch.compile(f, backend="aotviz")'),
        " or ",
        h("code", {}, "aotviz.compile(f)"),
        ".",
      )
    : state.recording.asksKernel
      ? h(
          "div",
          { class: "wish" },
          partitioner,
          h("label", {}, "memory budget ", share, says),
          button("Partition again", run),
        )
      : h(
          "p",
          { class: "muted" },
          "This needs the live function: show ",
          h("code", {}, "f.recording"),
          " in a notebook with its kernel, or call ",
          h("code", {}, `recording[${JSON.stringify(state.compilation.id)}].what_if(…)`),
          " there.",
        );
  return h(
    "details",
    { class: "what-if" },
    h("summary", {}, "What if the graph were partitioned differently?"),
    body,
    answer,
  );
}

function comparison(mine: readonly Row[], other: readonly Row[]): HTMLElement {
  const [here, there] = [totals(mine), totals(other)];
  const text = (value: number, isBytes: boolean): string => (isBytes ? bytes(value) : thousands(value));
  return h(
    "div",
    { class: "compared" },
    h(
      "table",
      {},
      h("caption", {}, "Side by side"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("td", {}),
          ["now", "what if", "change"].map((title) => h("th", { scope: "col", ...explained("columns", title) }, title)),
        ),
      ),
      h(
        "tbody",
        {},
        METRICS.map(([title, number, isBytes, welcome]) => {
          const [a, b] = [number(here), number(there)];
          return h(
            "tr",
            {},
            h("th", { scope: "row" }, title),
            h("td", {}, text(a, isBytes)),
            h("td", {}, text(b, isBytes)),
            h("td", { class: a === b ? "" : b > a === Boolean(welcome) ? "better" : "worse" }, change(a, b)),
          );
        }),
      ),
    ),
    differing("No longer saved", onlyIn(mine, other, "kept")),
    differing("Saved instead", onlyIn(other, mine, "kept")),
    differing("Recomputed", onlyIn(other, mine, "recomputed")),
  );
}

function change(a: number, b: number): string {
  if (a === b) return "the same";
  if (a === 0) return "new";
  const percent = (100 * (b - a)) / a;
  return `${percent > 0 ? "+" : "−"}${Math.abs(percent).toFixed(Math.abs(percent) < 10 ? 1 : 0)} %`;
}

function differing(title: string, rows: readonly Row[]): Child {
  if (!rows.length) return null;
  const sorted = [...rows].sort((a, b) => (b.cost ?? Infinity) - (a.cost ?? Infinity) || 0);
  return h(
    "details",
    {},
    h("summary", {}, `${title}: ${plural(rows.length, "value")}`),
    h(
      "ul",
      {},
      sorted
        .slice(0, 200)
        .map(({ name, producer, cost, fate, whose }) =>
          h(
            "li",
            {},
            h("code", {}, name),
            h(
              "span",
              { class: "muted" },
              ` ${producer} · ${fate === "shared" ? `in the memory of ${whose}` : bytes(cost)}`,
            ),
          ),
        ),
    ),
  );
}

function button(text: string, click: () => void): HTMLElement {
  return h("button", { type: "button", class: "small", on: { click } }, text);
}
