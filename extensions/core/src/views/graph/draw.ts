// A drawing as SVG. Every label is a text node. Boxes can be reached by keyboard: arrows go to the nearest box in
// that direction, Enter opens a module or selects a node.

import { h, svg } from "../../dom";
import { plural } from "../../format";
import type { Box, Picture } from "../../layout/hierarchy";
import type { Rectangle } from "../../layout/placed";
import type { Label } from "./labels";
import { type Drawing, openTitle } from "./lanes";

export interface Actions {
  box(box: Box): void;
  close(group: string): void;
}

export interface Drawn {
  readonly element: SVGSVGElement;
  mark(selected: string): void;
  focus(id: string): void;
}

const ARROW = "aot-arrow";

export function draw(picture: Picture, drawing: Drawing, labels: ReadonlyMap<string, Label>, actions: Actions): Drawn {
  const boxes = new Map<string, SVGGElement>();
  const touching = new Map<string, SVGElement[]>();
  const element = svg("svg", { class: "graph", viewBox: `0 0 ${drawing.width.toFixed(0)} ${drawing.height.toFixed(0)}`, role: "group", "aria-label": "Graph" });
  element.append(svg("defs", {}, svg("marker", { id: ARROW, viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "8", markerHeight: "8", markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" },
    svg("path", { d: "M0.5,1L7,4L0.5,7Z" }))));
  for (const { lane, x, y } of drawing.headings) {
    element.append(svg("text", { class: `heading ${lane}`, x, y, "text-anchor": "middle" }, lane === "forward" ? "forward ↓" : "backward ↑"));
  }
  const titles: SVGGElement[] = [];
  for (const group of picture.open) {
    const place = drawing.clusters.get(group.id);
    if (!place) continue;
    const close = (): void => actions.close(group.id);
    const transform = `translate(${place.x.toFixed(1)} ${place.y.toFixed(1)})`;
    element.append(svg("g", { class: `open ${group.lane}`, transform }, svg("rect", { width: place.width, height: place.height, rx: 8 })));
    titles.push(
      svg("g", { class: "title", transform, role: "button", tabindex: "-1", "aria-label": `Close ${group.label}`, data: { close: group.id }, on: { click: close } },
        svg("rect", { class: "hit", width: place.width, height: 26, rx: 8 }),
        svg("text", { x: 10, y: 17 }, fitted(openTitle(group), place.width - 16)),
        svg("title", {}, `${group.path || group.label}: close`)));
  }
  const edges = svg("g", { class: "edges" });
  for (const route of drawing.routes) {
    const path = svg("path", {
      d: route.path, class: `edge ${route.kind}`, transform: route.x || route.y ? `translate(${route.x.toFixed(1)} ${route.y.toFixed(1)})` : undefined,
      "stroke-width": Math.min(3, 1 + Math.log2(route.count) / 3).toFixed(2), "marker-end": `url(#${ARROW})`,
    });
    for (const end of [route.from, route.to]) (touching.get(end) ?? touching.set(end, []).get(end)!).push(path);
    edges.append(path);
  }
  element.append(edges, ...titles);
  for (const box of picture.boxes) {
    const place = drawing.boxes.get(box.id);
    const label = labels.get(box.id);
    if (!place || !label) continue;
    const node = boxShape(box, place, label);
    const hover = (on: boolean) => (): void => {
      for (const path of touching.get(box.id) ?? []) path.classList.toggle("hot", on);
    };
    node.addEventListener("click", () => actions.box(box));
    node.addEventListener("mouseenter", hover(true));
    node.addEventListener("mouseleave", hover(false));
    node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") actions.box(box);
      else if (event.key.startsWith("Arrow")) boxes.get(nearest(drawing, box.id, event.key) ?? "")?.focus();
      else return;
      event.preventDefault();
    });
    boxes.set(box.id, node);
    element.append(node);
  }
  const first = boxes.values().next().value;
  first?.setAttribute("tabindex", "0");
  let marked: string | null = null;
  return {
    element,
    mark(selected) {
      for (const path of touching.get(marked ?? "") ?? []) path.classList.remove("chosen");
      boxes.get(marked ?? "")?.removeAttribute("aria-current");
      marked = selected;
      boxes.get(selected)?.setAttribute("aria-current", "true");
      for (const path of touching.get(selected) ?? []) path.classList.add("chosen");
    },
    focus: (id) => boxes.get(id)?.focus({ preventScroll: true }),
  };
}

/** As much of a text as there is room for. */
function fitted(text: string, pixels: number): string {
  const most = Math.max(3, Math.floor(pixels / 7.2));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function boxShape(box: Box, place: Rectangle, label: Label): SVGGElement {
  const { width, height } = place;
  const module = label.kind === "module";
  const left = module ? 26 : width / 2;
  const anchor = module ? "start" : "middle";
  return svg("g", {
    class: `box ${label.kind} ${box.lane}`, role: "button", tabindex: "-1", transform: `translate(${place.x.toFixed(1)} ${place.y.toFixed(1)})`,
    "aria-label": `${label.title} ${label.detail}${marks(box)}`, ...(module ? { "aria-expanded": "false" } : {}), data: { box: box.id },
  },
    svg("rect", { width, height, rx: label.kind === "input" || label.kind === "output" ? height / 2 : 6 }),
    module && svg("text", { class: "sign", x: 11, y: height / 2 + 4 }, "▸"),
    svg("text", { class: "name", x: left, y: label.detail ? 17 : height / 2 + 4, "text-anchor": anchor }, label.title),
    label.detail && svg("text", { class: "detail", x: left, y: 31, "text-anchor": anchor }, label.detail),
    box.gradients > 0 && svg("g", { class: "returned", transform: `translate(0 ${height / 2})` },
      svg("circle", { r: module ? 8 : 4.5 }), module && svg("text", { y: 3.5, "text-anchor": "middle" }, box.gradients)),
    box.saved > 0 && svg("g", { class: "saved", transform: `translate(${width} ${height / 2})` },
      svg("circle", { r: module ? 8 : 4.5 }), module && svg("text", { y: 3.5, "text-anchor": "middle" }, box.saved)),
    svg("title", {}, (box.group ? `${box.group.path || box.group.label}: open` : `${label.title} ${label.detail}`) + marks(box)));
}

function marks(box: Box): string {
  return (box.saved ? `, saves ${box.saved} for the backward` : "") + (box.gradients ? `, returns ${plural(box.gradients, "gradient")}` : "");
}

/** The closest box in the direction of an arrow key; distance aside counts twice. */
function nearest(drawing: Drawing, from: string, key: string): string | null {
  const start = drawing.boxes.get(from);
  if (!start) return null;
  let best: string | null = null;
  let least = Infinity;
  for (const [id, place] of drawing.boxes) {
    const dx = place.x + place.width / 2 - start.x - start.width / 2;
    const dy = place.y + place.height / 2 - start.y - start.height / 2;
    const [along, aside] = { ArrowRight: [dx, dy], ArrowLeft: [-dx, dy], ArrowDown: [dy, dx], ArrowUp: [-dy, dx] }[key] ?? [0, 0];
    const distance = along! + 2 * Math.abs(aside!);
    if (id !== from && along! > 1 && distance < least) [best, least] = [id, distance];
  }
  return best;
}

/** A legend that needs no colour to be understood: the lanes are also named. */
export function legend(): HTMLElement {
  const entry = (kind: string, text: string): HTMLElement => h("span", { class: `key ${kind === "across" || kind === "returned" ? "" : "lane-key"}` }, h("i", { class: kind }), text);
  return h("span", { class: "legend" }, entry("forward", "forward"), entry("backward", "backward"), entry("across", "saved for backward"), entry("returned", "gradients"));
}
