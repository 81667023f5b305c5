// The graph by modules, closed at first. A click opens a module or selects a node; the selected node is always
// brought to light, whichever view selected it.

import { h, notice, replace } from "../../dom";
import { plural } from "../../format";
import { boxOf, firstOpen, type Hierarchy, hierarchy, openTo, picture } from "../../layout/hierarchy";
import type { Graph } from "../../model";
import type { State } from "../../state";
import type { Context, Mounted, View } from "../view";
import { draw, type Drawn, legend } from "./draw";
import { type Label, label } from "./labels";
import { type Drawing, evened, join, lanesOf } from "./lanes";

const READABLE = 0.8; // a tall graph is scrolled rather than made smaller than this
const MOST_BOXES = 2500;
const opened = new WeakMap<State, Map<string, Set<string>>>(); // what the reader opened stays open on the way through the stages

export const graph: View = {
  id: "graph",
  title: "Graph",
  mount(parent: HTMLElement, { state, layouter }: Context): Mounted {
    const canvas = h("div", { class: "canvas", tabindex: "-1" });
    const status = h("span", { class: "muted" });
    const button = (text: string, title: string, click: () => void): HTMLElement => h("button", { type: "button", class: "small", title, "aria-label": title, on: { click } }, text);
    let tree: Hierarchy | null = null;
    let shown: Graph | null = null;
    let drawn: Drawn | null = null;
    let drawing: Drawing | null = null;
    let zoom = 1;
    let turn = 0; // of layouts; a late answer to an earlier question is dropped

    const setZoom = (next: number): void => {
      if (!drawing || !drawn) return;
      const x = (canvas.scrollLeft + canvas.clientWidth / 2) / zoom;
      const y = (canvas.scrollTop + canvas.clientHeight / 2) / zoom;
      zoom = Math.max(0.1, Math.min(3, next));
      drawn.element.setAttribute("width", String(Math.round(drawing.width * zoom)));
      drawn.element.setAttribute("height", String(Math.round(drawing.height * zoom)));
      canvas.scrollTo(x * zoom - canvas.clientWidth / 2, y * zoom - canvas.clientHeight / 2);
    };
    const fit = (): void => {
      if (drawing) setZoom(Math.max(0.25, Math.min(1, canvas.clientWidth / drawing.width, Math.max(READABLE, canvas.clientHeight / drawing.height))));
    };
    const show = (id: string): void => {
      const place = drawing?.boxes.get(id) ?? drawing?.clusters.get(id);
      if (!place) return;
      canvas.scrollTo((place.x + place.width / 2) * zoom - canvas.clientWidth / 2, place.y * zoom - Math.min(canvas.clientHeight / 2, 80));
    };

    const relayout = (look: string | null): void => {
      lay(look).catch((error: unknown) => {
        drawn = drawing = null;
        replace(canvas, notice("error", "The graph could not be laid out.", String(error)));
      });
    };
    const lay = async (look: string | null): Promise<void> => {
      const graph = state.graph;
      if (!graph || !tree) return;
      const mine = ++turn;
      const open = openOf(state, graph, tree);
      const seen = picture(graph, tree, open);
      if (seen.boxes.length > MOST_BOXES) {
        drawn = drawing = null;
        replace(canvas, notice("empty", `${seen.boxes.length} boxes are too many to read.`, "Close some modules, or read this graph in the Code view."));
        return;
      }
      const labels = new Map<string, Label>(seen.boxes.map((box) => [box.id, label(state, graph, box)]));
      const lanes = lanesOf(seen, new Map([...labels].map(([id, { size }]) => [id, size])));
      status.textContent = "laying out …";
      const layouts = await layouter.layout(lanes.map(({ input }) => input));
      const even = evened(lanes, layouts);
      if (even) layouts[even.index] = (await layouter.layout([even.input]))[0]!;
      if (mine !== turn) return;
      const fresh = drawn === null;
      drawing = join(seen, lanes, layouts);
      drawn = draw(seen, drawing, labels, {
        box(box) {
          if (!box.group) return state.openNode(box.node);
          open.add(box.group.id);
          relayout(box.group.id);
        },
        close(group) {
          for (const id of [...open]) if (id.startsWith(group)) open.delete(id);
          relayout(group);
        },
      });
      status.textContent = `${plural(graph.nodes.length, "node")} in ${seen.boxes.length === 1 ? "1 box" : `${seen.boxes.length} boxes`}`;
      replace(canvas, drawn.element);
      if (fresh) fit();
      else setZoom(zoom);
      mark();
      if (look) {
        show(look);
        drawn.focus(look);
      }
    };

    const mark = (): void => {
      const { graph, selection } = state;
      if (graph && tree && drawn) drawn.mark(selection.node < 0 ? "" : boxOf(tree, openOf(state, graph, tree), selection.node));
    };

    const update = (): void => {
      const { graph, selection } = state;
      if (!graph) {
        shown = tree = drawn = drawing = null;
        turn++;
        replace(parent, notice("empty", "This stage made no graph.", "Pick a stage that has one: the list shows its nodes."));
        return;
      }
      let fresh = false;
      if (shown !== graph) {
        fresh = shown?.role !== graph.role || shown === null;
        if (fresh) drawn = null;
        shown = graph;
        tree = hierarchy(graph, new Set(state.compilation.inputs.filter(({ kind }) => kind === "input").map(({ name }) => name)));
        if (!canvas.isConnected) {
          replace(parent, h("div", { class: "bar" }, status, h("span", { class: "spring" }), legend(),
            button("−", "Zoom out", () => setZoom(zoom / 1.25)), button("Fit", "Fit to the view", fit), button("+", "Zoom in", () => setZoom(zoom * 1.25)),
            button("Open all", "Open all modules", () => everything(true)), button("Close all", "Close all modules", () => everything(false))), canvas);
          replace(canvas, notice("loading", "Laying out the graph …"));
        }
        if (selection.node >= 0) reveal(selection.node);
        relayout(selection.node >= 0 ? boxOf(tree, openOf(state, graph, tree), selection.node) : null);
      } else if (selection.node >= 0 && reveal(selection.node)) {
        relayout(boxOf(tree!, openOf(state, graph, tree!), selection.node));
      } else {
        mark();
      }
    };

    /** Opens what hides a node; whether anything had to be opened. */
    const reveal = (node: number): boolean => {
      const open = openOf(state, state.graph!, tree!);
      const before = open.size;
      openTo(tree!, node, open);
      return open.size > before;
    };
    const everything = (open: boolean): void => {
      const set = openOf(state, state.graph!, tree!);
      set.clear();
      for (const id of open ? tree!.groups.keys() : firstOpen(tree!)) set.add(id);
      drawn = null;
      relayout(null);
    };

    panByDragging(canvas);
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      setZoom(zoom * Math.exp(-event.deltaY / 300));
    }, { passive: false });
    update();
    return {
      update,
      destroy() {
        turn++;
      },
    };
  },
};

function openOf(state: State, graph: Graph, tree: Hierarchy): Set<string> {
  let sets = opened.get(state);
  if (!sets) opened.set(state, (sets = new Map()));
  const key = `${state.selection.compilation} ${graph.role}`;
  let open = sets.get(key);
  if (!open) sets.set(key, (open = firstOpen(tree)));
  return open;
}

function panByDragging(canvas: HTMLElement): void {
  let from: { x: number; y: number; left: number; top: number } | null = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button === 0) from = { x: event.clientX, y: event.clientY, left: canvas.scrollLeft, top: canvas.scrollTop };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from || !(event.buttons & 1)) return void (from = null);
    canvas.scrollTo(from.left - event.clientX + from.x, from.top - event.clientY + from.y);
  });
}
