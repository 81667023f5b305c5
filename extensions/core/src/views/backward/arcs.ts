// Arcs at the left of the table of autograd nodes: from each node to those that wait for its gradient.

import { replace, svg } from "../../dom";
import type { VisitRecord } from "../../wire";
import { edges } from "./relation";

const MOST = 400; // arcs that are drawn before one is chosen
const WIDTH = 46; // pixels

export interface Arcs {
  readonly element: SVGElement;
  /** Draws them beside the rows, whose places in the page it reads. */
  draw(rows: readonly HTMLElement[]): void;
  /** Lights the arcs of one row; -1 for none. */
  choose(chosen: number): void;
}

export function arcs(visits: readonly VisitRecord[]): Arcs {
  const all = edges(visits);
  const element = svg("svg", { class: "arcs", width: WIDTH, "aria-hidden": "true" });
  let centres: readonly number[] = [];
  let lit = -1;
  const paint = (): void => {
    const drawn = all.length > MOST ? all.filter(({ from, to }) => lit === from || lit === to) : all;
    replace(
      element,
      ...drawn.map(({ from, to }) => {
        const [above, below] = [centres[from] ?? 0, centres[to] ?? 0];
        const reach = Math.min(WIDTH - 6, 6 + 4 * Math.sqrt(Math.abs(to - from)));
        const path = `M ${WIDTH} ${above} C ${WIDTH - reach} ${above}, ${WIDTH - reach} ${below}, ${WIDTH} ${below}`;
        return svg("path", { d: path, class: lit === from ? "waits" : lit === to ? "feeds" : undefined });
      }),
    );
  };
  return {
    element,
    draw(rows) {
      const top = element.getBoundingClientRect().top;
      const boxes = rows.map((row) => row.getBoundingClientRect());
      centres = boxes.map((box) => (box.top + box.bottom) / 2 - top);
      element.setAttribute("height", String(Math.ceil((boxes[boxes.length - 1]?.bottom ?? top) - top)));
      paint();
    },
    choose(chosen) {
      lit = chosen;
      paint();
    },
  };
}
