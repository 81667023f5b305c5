// Two small plots: held bytes by module or operator as bars, and the bytes held while the backward runs as steps.

import { h, svg } from "../../dom";
import { bytes } from "../../format";
import { grouped, type Grouping, groupOf, held, type Row, type Step } from "./ledger";

const MOST_BARS = 12;
const WIDTH = 560;
const HEIGHT = 150;

/** Bars by module or operator; a click on one shows only its rows. */
export function bars(rows: readonly Row[], by: Grouping, chosen: string, choose: (name: string) => void): HTMLElement {
  const groups = grouped(rows, by);
  const most = Math.max(1, ...groups.map(({ saved, again }) => saved + again));
  const shown = groups.slice(0, MOST_BARS);
  return h(
    "ul",
    { class: "bars" },
    shown.map(({ name, saved, again }) => {
      const [one, two] = [h("i", { class: "saved" }), h("i", { class: "again" })];
      one.style.width = `${(100 * saved) / most}%`;
      two.style.width = `${(100 * again) / most}%`;
      return h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(name === chosen),
            title: "show only these values",
            on: { click: () => choose(name === chosen ? "" : name) },
          },
          h("code", { title: name }, h("bdi", {}, name)),
          h("span", { class: "bar-track", "aria-hidden": "true" }, one, two),
          h("span", { class: "number" }, bytes(saved), again > 0 && h("small", {}, ` + ${bytes(again)} recomputed`)),
        ),
      );
    }),
    groups.length > shown.length && h("li", { class: "muted" }, `and ${groups.length - shown.length} smaller`),
  );
}

export function inGroup(row: Row, by: Grouping, chosen: string): boolean {
  return chosen === "" || (row.fate !== "input" && groupOf(row, by) === chosen);
}

/** Bytes held from the first node of the backward to the last; `other` is drawn as a line for comparison. */
export function steps(rows: readonly Row[], other: readonly Row[] | null): SVGSVGElement {
  const [mine, theirs] = [held(rows), other ? held(other) : []];
  const last = Math.max(1, ...[...mine, ...theirs].map(({ at }) => at));
  const most = Math.max(1, ...[...mine, ...theirs].map(({ saved, again }) => saved + again));
  const x = (at: number): number => (WIDTH * at) / last;
  const y = (size: number): number => HEIGHT - 1 - ((HEIGHT - 14) * size) / most;
  const line = (found: readonly Step[], size: (step: Step) => number): string =>
    found.map((step, i) => `${i === 0 ? `M${x(step.at)},${y(0)}` : `H${x(step.at)}`}V${y(size(step))}`).join("");
  const area = (found: readonly Step[], size: (step: Step) => number): string =>
    `${line(found, size)}H${WIDTH}V${y(0)}Z`;
  return svg(
    "svg",
    {
      class: "steps",
      viewBox: `0 0 ${WIDTH} ${HEIGHT + 16}`,
      role: "img",
      "aria-label": `At most ${bytes(most)} are held while the backward runs`,
    },
    svg("path", { class: "again", d: area(mine, ({ saved, again }) => saved + again) }),
    svg("path", { class: "saved", d: area(mine, ({ saved }) => saved) }),
    theirs.length > 0 && svg("path", { class: "other", d: line(theirs, ({ saved, again }) => saved + again) }),
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
    svg("text", { x: 2, y: 10 }, bytes(most)),
    svg("text", { x: 0, y: HEIGHT + 13 }, "the backward begins"),
    svg("text", { x: WIDTH, y: HEIGHT + 13, "text-anchor": "end" }, `node ${last}`),
  );
}
