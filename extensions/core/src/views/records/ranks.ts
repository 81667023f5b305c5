// What differs between the ranks of a job: each difference in a sentence, with what the ranks run drawn below it. There
// is one lane for the ranks that run the same; a step that differs from the first lane's is marked.

import { type Child, h, quoted } from "../../dom";
import type { RankDifference, RankLane } from "../../wire";

export function differences(
  found: readonly RankDifference[],
  compilations: (ids: readonly string[]) => Child,
): HTMLElement {
  return h(
    "ul",
    { class: "ranks", "aria-label": "Differences between ranks" },
    found.map((one) =>
      h(
        "li",
        { data: { kind: one.kind } },
        h(
          "h3",
          {},
          one.kind[0]!.toUpperCase() + one.kind.slice(1),
          h("span", { class: "opened" }, compilations(one.ids)),
        ),
        h("p", {}, quoted(one.words)),
        one.lanes.length > 0 && h("div", { class: "lanes" }, h("table", {}, one.lanes.map(lane(one.lanes[0]!)))),
        one.fix && h("p", { class: "fix" }, h("b", {}, "What to do: "), quoted(one.fix)),
      ),
    ),
  );
}

function lane(first: RankLane): (one: RankLane) => HTMLElement {
  return ({ ranks, steps, before, after }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, ranks),
      before > 0 && h("td", { class: "muted" }, `${before} alike`),
      steps.map((step, i) =>
        h("td", {}, h("span", { class: first.steps[i] === step ? "step" : "step apart", title: step }, step)),
      ),
      after > 0 && h("td", { class: "muted" }, `${after} more`),
    );
}
