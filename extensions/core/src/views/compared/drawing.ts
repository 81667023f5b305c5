// A small drawing of a graph, as SVG: a box for each node, with the nodes that differ marked. It is for graphs that are
// readable at the width of a column; the graph view draws all others.

import { h, replace, svg } from "../../dom";
import type { Graph } from "../../graph";
import { hierarchy } from "../../layout/hierarchy";
import { picture } from "../../layout/picture";
import type { State } from "../../state";
import { label } from "../graph/labels";
import { join, lanesOf, type Scene } from "../graph/scene";
import type { Context } from "../view";

export const MOST_DRAWN = 80; // nodes

/** The drawing, which appears when it is laid out. `lit`: numbers of nodes. */
export function drawing(
  state: State,
  layouter: Context["layouter"],
  graph: Graph,
  lit: ReadonlySet<number>,
): HTMLElement {
  const place = h("div", { class: "drawn", tabindex: "0", role: "group", "aria-label": "Graph", "aria-busy": "true" });
  void lay(state, layouter, graph).then(
    ({ scene, labels }) => {
      replace(place, drawn(graph, scene, labels, lit));
      place.removeAttribute("aria-busy");
    },
    (error: unknown) => {
      replace(place, h("p", { class: "muted" }, `The graph could not be laid out: ${String(error)}`));
      place.removeAttribute("aria-busy");
    },
  );
  return place;
}

async function lay(
  state: State,
  layouter: Context["layouter"],
  graph: Graph,
): Promise<{ scene: Scene; labels: ReturnType<typeof label>[] }> {
  const tree = hierarchy(graph, new Set(state.compilation.inputs.map(({ name }) => name)));
  const seen = picture(graph, tree, new Set(), true);
  const labels = seen.boxes.map((box) => label(state, graph, box));
  const sizes = labels.map(({ size }) => size);
  const lanes = lanesOf(seen, sizes);
  const { lanes: layouts } = await layouter.layout(lanes.map(({ input }) => input));
  return { scene: join(seen, sizes, lanes, layouts), labels };
}

function drawn(
  graph: Graph,
  { width, height, picture: seen, places, routes }: Scene,
  labels: ReturnType<typeof label>[],
  lit: ReadonlySet<number>,
): SVGSVGElement {
  const image = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": `Graph of ${graph.nodes.length} nodes`,
    },
    routes
      .filter(({ kind }) => kind !== "alias" && kind !== "quiet")
      .map(({ points }) => svg("path", { class: "edge", d: path(points) })),
  );
  seen.boxes.forEach((box, i) => {
    const { x, y, width: w, height: t } = places[i]!;
    const { title, detail, kind } = labels[i]!;
    image.append(
      svg(
        "g",
        { class: `box ${kind}${lit.has(box.node) ? " lit" : ""}` },
        svg("rect", { x, y, width: w, height: t, rx: 5 }),
        svg("text", { x: x + w / 2, y: y + (detail ? 16 : 17) }, title),
        detail ? svg("text", { class: "detail", x: x + w / 2, y: y + 31 }, detail) : null,
      ),
    );
  });
  return image;
}

function path(points: Float32Array): string {
  const at = (i: number): string => `${points[i]!.toFixed(1)} ${points[i + 1]!.toFixed(1)}`;
  if (points.length === 4) return `M${at(0)}L${at(2)}`;
  let text = `M${at(0)}`;
  for (let i = 2; i + 5 < points.length; i += 6) text += `C${at(i)} ${at(i + 2)} ${at(i + 4)}`;
  return text;
}
