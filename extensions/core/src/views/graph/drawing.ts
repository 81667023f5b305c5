// One graph by modules, which are closed at first. A click opens a module or selects a node. The selected node is
// always made visible, whichever view selected it. This file connects the parts: the picture, layout and scene, the
// canvas (surface.ts), the outline and the controls. beside.ts shows one or more of these drawings.

import { atOnce, inSteps } from "../../chunked_work";
import { h, replace } from "../../dom";
import * as format from "../../format";
import { closeAll, firstOpen, type Group, grouping, type Hierarchy, openTo } from "../../layout/hierarchy";
import { Cancelled } from "../../layout/layouter";
import { MARKS } from "../../layout/marks";
import { type Picture, picture } from "../../layout/picture";
import type { Rectangle } from "../../layout/placed";
import type { Graph } from "../../graph";
import type { State } from "../../state";
import type { Painting } from "../../wire";
import { noGraph } from "../absent";
import type { Context, Mounted } from "../view";
import { type Chooser, chooser } from "./chooser";
import { colouring } from "./colouring";
import { advice, bar, legend, waiting, type Wish, type Wishes } from "./controls";
import { emphasis, touching } from "./emphasis";
import { Grid, type Hit } from "./grid";
import { becameIn, counterparts, type Seen } from "./identity";
import { gone } from "./gone";
import { label, rowTexts } from "./labels";
import type { Peers } from "./in_step";
import { loadColours, type Kept, keptOf } from "./kept";
import { minimap, overviewOf } from "./minimap";
import { closedLane, outline, type Row, rowsOf } from "./outline";
import { type Drawn, NOTHING } from "./paint";
import { type Palette, readPalette } from "./palette";
import { boxes, refusal, TooMany } from "./refusal";
import { join, lanesOf, placeOf, type Scene } from "./scene";
import { Surface } from "./surface";
import { placeTip, tipOf } from "./tip";
import { paintingKey, type ValuesTable, valuesTable } from "./values";

const MOST_BOXES = 60_000;
const AT_ONCE = 100_000; // nodes: a graph with at most this many is grouped into modules without a progress bar
const SLOW_MS = 250; // of a layout, before a notice says that it is running
const NARROW = 900; // pixels: a wider place has room for the outline, the drawing and the facts, open or not

export class Drawing implements Mounted {
  readonly bar: HTMLElement; // its controls, which the caller places
  readonly state: State;
  private readonly kept: Kept;
  readonly wishes: Wishes;
  private readonly box: HTMLElement;
  private readonly stage = h("div", { class: "stage-area" });
  private readonly overlay = h("div", { class: "overlay" });
  private readonly keys = h("div", { class: "keys" });
  private readonly status = h("div", { class: "status", "aria-live": "polite" });
  private readonly note = h("div", { class: "note-line", "aria-live": "polite" });
  private readonly tip = h("div", { class: "tip", hidden: true });
  readonly surface: Surface;
  private readonly tree;
  private readonly unsubscribe: () => void;
  private readonly map;
  private readonly chooser: Chooser;
  private readonly values: ValuesTable;
  private readonly themes: MutationObserver;
  private palette: Palette;
  shown: Graph | null = null;
  hierarchy: Hierarchy | null = null;
  drawn: Drawn | null = null;
  private rows: readonly Row[] = [];
  private running: AbortController | null = null; // the running layout, which the reader can cancel
  private grouping = new AbortController(); // cancels the grouping of the graph into modules
  private painting: Painting | null = null; // that colours the drawing
  private missedIn = -1; // the last stage for which a note said that it lacks the followed node
  private sought = -1; // a node to make visible when there is a drawing
  private own = false; // the selection came from the canvas, so the node is already visible

  constructor(
    private readonly parent: HTMLElement,
    private readonly context: Context,
    private readonly peers: Peers<Drawing>,
    wishes: Partial<Wishes> = {},
  ) {
    this.state = context.state;
    this.kept = keptOf(this.state);
    this.wishes = this.kept.wishes ??= {
      by: "direction",
      values: false,
      aliases: true,
      chain: false,
      flat: false,
      outline: (parent.closest(".content") ?? parent).clientWidth >= NARROW,
      ...wishes,
    };
    this.box = h("div", { class: "drawing-box" });
    replace(parent, this.box);
    this.palette = readPalette(this.box);
    this.values = valuesTable(this.state);
    this.unsubscribe = context.search.subscribe(() => this.mark());
    this.tree = outline({
      open: (group, open) => this.openGroup(group, open, false),
      select: (node) => this.state.openNode(node),
      cursor: (row) => this.point(row),
      neighbour: (node, which) => this.state.openNode(this.shown?.nodes[node]?.[which][0] ?? node),
      key: (key) => (key === "Escape" ? (this.letGo(), true) : this.surface.key(key)),
    });
    this.map = minimap((x, y) => {
      const { width, height, scale } = this.surface.view;
      this.surface.hand.set({ scale, x: x - width / 2 / scale, y: y - height / 2 / scale });
    });
    this.surface = new Surface(this.palette, {
      hit: (hit, x, y) => this.showTip(hit, x, y),
      click: (hit) => this.click(hit),
      moved: () => this.map.frame(this.surface.view),
      steered: (zoom, gentle) => this.peers.steered(this, zoom, gentle),
      fitted: () => this.peers.fitted(this),
    });
    this.surface.canvas.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.letGo();
      event.preventDefault();
    });
    this.chooser = chooser(this.state, {
      property: (by) => {
        this.wishes.by = by;
        this.state.openPainting("");
        this.wished("by");
        this.peers.wished(this, "by");
      },
      values: (shown) => {
        this.wishes.values = shown;
        this.updatePainting();
      },
      failed: (why) => replace(this.note, `The painting could not be taken away: ${why}`),
    });
    this.bar = bar(this.wishes, this.chooser.element, {
      changed: (what) => {
        this.wished(what);
        this.peers.wished(this, what);
      },
      everything: (open) => this.peers.everything(open),
      zoom: (key) => this.surface.key(key),
    });
    this.stage.append(this.surface.canvas, this.map.element, this.overlay, this.tip);
    this.box.append(
      h("div", { class: "graph-body" }, this.tree.element, this.stage, this.values.element),
      h("div", { class: "graph-foot" }, this.note, this.status, this.keys),
    );
    this.wished("outline");
    this.themes = new MutationObserver(() => this.retheme());
    this.themes.observe(this.box.closest(".workbench") ?? this.box, {
      attributes: true,
      attributeFilter: ["data-theme"],
    });
    this.update();
  }

  destroy(): void {
    this.unsubscribe();
    this.grouping.abort();
    this.running = null;
    this.themes.disconnect();
    this.surface.destroy();
  }

  update(): void {
    const { graph, selection } = this.state;
    if (!graph) {
      this.grouping.abort();
      this.running = null;
      this.shown = this.hierarchy = this.drawn = null;
      replace(this.parent, noGraph(this.state));
      return;
    }
    if (!this.box.isConnected) replace(this.parent, this.box);
    this.updatePainting();
    if (this.shown !== graph) return this.change(graph);
    if (selection.node >= 0) {
      this.kept.node = this.seen(graph, selection.node);
      replace(this.note);
    } else if (this.kept.node?.graph === graph)
      this.kept.node = null; // the reader deselected it; a node that this graph lacks is still followed
    else if (this.hierarchy && this.missedIn !== selection.stage) this.sayGone(graph);
    if (!this.hierarchy) return; // it is still being built
    if (selection.node >= 0 && this.reveal(selection.node)) void this.lay(null, selection.node);
    else this.select(!this.own);
  }

  /** The chooser and the table of values, and the colours if another painting is selected. */
  private updatePainting(): void {
    const { painting, graph } = this.state;
    this.chooser.update(this.wishes.by);
    this.values.element.hidden = !painting || !this.wishes.values;
    if (painting) this.values.update();
    const other = this.painting !== painting;
    this.painting = painting;
    if (other && graph === this.shown) this.recolour();
  }

  /** Shows another graph. A very large one is grouped into modules in steps, so that the page stays responsive. */
  private change(graph: Graph): void {
    const fresh = this.shown?.role !== graph.role;
    const before = this.kept.node;
    this.grouping.abort();
    this.shown = graph;
    replace(this.note);
    const work = grouping(
      graph,
      new Set(
        this.state.compilation.inputs
          .filter((input) => input.kind === "input" && !input.static /* Dynamo's parameters are such inputs */)
          .map(({ name }) => name),
      ),
    );
    if (graph.nodes.length <= AT_ONCE) return this.changed(graph, atOnce(work), fresh, before);
    this.running = this.hierarchy = this.drawn = null;
    this.tree.clear();
    const { signal } = (this.grouping = new AbortController());
    const bar = h("progress", { max: 1, "aria-label": "Progress" });
    this.cover(
      waiting(
        `Grouping ${format.plural(graph.nodes.length, "node")} by module …`,
        () => {
          this.grouping.abort();
          this.cover(
            advice("empty", "The graph is not shown.", "Grouping its nodes was cancelled.", [
              "Try again",
              () => this.change(graph),
            ]),
          );
        },
        bar,
      ),
    );
    inSteps(work, signal, (share) => (bar.value = share)).then(
      (tree) => this.changed(graph, tree, true, before),
      (error: unknown) => {
        if (!signal.aborted) this.cover(this.refusal(error));
      },
    );
  }

  /** Keeps the same groups open and follows the selected node. */
  private changed(graph: Graph, tree: Hierarchy, fresh: boolean, before: Kept["node"]): void {
    this.hierarchy = tree;
    let node = this.state.selection.node;
    if (node < 0 && before && before.graph !== graph) {
      const found = becameIn(this.state.recording, before, this.state.compilation.id, graph);
      if (found.same >= 0) queueMicrotask(() => this.state.openNode(found.same));
      else this.sayGone(graph);
      node = found.same;
    } else if (node >= 0) this.kept.node = this.seen(graph, node);
    if (fresh) this.drawn = null;
    this.peers.grouped(this);
    if (node >= 0) this.reveal(node);
    void this.lay(null, node);
  }

  /** The nodes of this graph that correspond to the followed node, if there is a followed node. */
  private sayGone(graph: Graph): void {
    if (!this.kept.node) return;
    this.missedIn = this.state.selection.stage;
    replace(this.note, ...gone(this.state, this.kept.node, graph));
  }

  private seen(graph: Graph, node: number): Seen {
    return { compilation: this.state.compilation.id, graph, node: graph.nodes[node]! };
  }

  /** The selected nodes, or the one that the reader follows and this graph lacks. */
  get followed(): readonly Seen[] {
    const { graph, selection } = this.state;
    const { node, nodes } = selection;
    if (!graph || !nodes.length) return this.kept.node ? [this.kept.node] : [];
    return [node, ...nodes.filter((one) => one !== node)].map((one) => this.seen(graph, one));
  }

  /** Selects what the selected nodes of another drawing are here. If the first is not here, the line below says why. */
  follow(seen: readonly Seen[]): void {
    const { shown: graph, state } = this;
    const [first] = seen;
    if (!graph) return;
    if (!first) return this.letGo();
    const { recording, compilation } = state;
    state.openNodes([...new Set(seen.flatMap((one) => counterparts(recording, one, compilation.id, graph)))]);
    if (becameIn(recording, first, compilation.id, graph).same >= 0) return;
    this.kept.node = first;
    this.sayGone(graph);
  }

  /** The modules were opened or closed from outside; `around` keeps its place. */
  reopen(around: string): void {
    if (!this.wishes.flat) void this.lay(this.hierarchy?.groups.get(around) ?? null, -1);
    this.listRows();
  }

  /** Deselects the node and stops following it. */
  private letGo(): void {
    this.kept.node = null;
    replace(this.note);
    this.state.openNode(-1);
  }

  get open(): Set<string> {
    const key = `${this.state.selection.compilation} ${this.shown!.role}`;
    let open = this.kept.open.get(key);
    if (!open) this.kept.open.set(key, (open = firstOpen(this.hierarchy!)));
    return open;
  }

  /** Opens the groups around a node; returns whether any was closed. */
  private reveal(node: number): boolean {
    for (const root of Object.values(this.hierarchy!.roots)) this.open.delete(closedLane(root));
    return openTo(this.hierarchy!, node, this.open);
  }

  private openGroup(group: Group, open: boolean, bring: boolean): void {
    if (!group.parent) {
      // a lane, which is always open on the canvas
      if (open) this.open.delete(closedLane(group));
      else this.open.add(closedLane(group));
      return this.listRows();
    }
    if (open) this.open.add(group.id);
    else closeAll(group, this.open);
    if (!this.wishes.flat) void this.lay(group, -1, bring); // first, because graphviz runs in a worker
    this.listRows();
    this.peers.opened(this, group.id);
  }

  everything(open: boolean): void {
    if (!this.hierarchy) return;
    this.open.clear();
    const roots: Group[] = Object.values(this.hierarchy.roots);
    for (const id of open
      ? [...this.hierarchy.groups.values()].filter((group) => !roots.includes(group)).map(({ id }) => id)
      : firstOpen(this.hierarchy))
      this.open.add(id);
    this.drawn = null;
    void this.lay(null, -1);
  }

  /** Lays out and shows the open groups. `around`: the group that was opened or closed; it keeps its place. */
  private async lay(around: Group | null, node: number, bring = true): Promise<void> {
    const graph = this.shown;
    const tree = this.hierarchy;
    if (!graph || !tree) return;
    const running = (this.running = new AbortController());
    const late = setTimeout(
      () => this.cover(waiting("Laying out the graph …", () => this.stop(running))),
      this.drawn ? SLOW_MS : 0,
    );
    try {
      const seen = picture(graph, tree, this.open, this.wishes.flat);
      if (seen.boxes.length > MOST_BOXES) throw new TooMany(seen.boxes.length);
      const labels = seen.boxes.map((box) => label(this.state, graph, box));
      const sizes = labels.map(({ size }) => size);
      const lanes = lanesOf(seen, sizes);
      const { lanes: layouts, note } = await this.context.layouter.layout(
        lanes.map(({ input }) => input),
        running.signal,
      );
      if (this.running !== running) return; // a newer layout was started
      const scene = join(seen, sizes, lanes, layouts);
      const touches = touching(scene);
      this.show(
        {
          scene,
          grid: new Grid(scene),
          labels,
          colouring: colouring(this.state, graph, seen.boxes, this.wishes.by),
          aliases: this.wishes.aliases,
          emphasis: NOTHING,
          found: this.boxesOf(seen),
          touching: (box) => touches[box] ?? [],
        },
        around,
        node,
        bring,
      );
      replace(
        this.status,
        `${format.plural(graph.nodes.length, "node")} in ${boxes(seen.boxes.length)}`,
        note && h("span", { title: note }, " · plain layout"),
      );
      this.cover(null);
    } catch (error) {
      if (error instanceof Cancelled || this.running !== running) return;
      this.drawn = null;
      this.cover(this.refusal(error));
    } finally {
      clearTimeout(late);
    }
  }

  private refusal(error: unknown): HTMLElement {
    return refusal(
      error,
      () => void this.lay(null, -1),
      () => this.startOver(),
    );
  }

  private stop(running: AbortController): void {
    running.abort();
    this.cover(
      this.drawn
        ? null
        : advice(
            "empty",
            "The layout was cancelled.",
            "",
            ["Try again", () => void this.lay(null, -1)],
            ["Close all modules", () => this.startOver()],
          ),
    );
  }

  /** Restores the initial open modules. */
  startOver(): void {
    this.wishes.flat = false;
    this.bar.querySelector('[data-toggle="flat"]')?.setAttribute("aria-pressed", "false");
    this.everything(false);
  }

  private cover(notice: HTMLElement | null): void {
    replace(this.overlay, notice);
    this.overlay.hidden = notice === null;
  }

  private show(drawn: Drawn, around: Group | null, node: number, bring: boolean): void {
    const before = this.drawn;
    this.drawn = { ...drawn, emphasis: this.emphasised(drawn.scene) };
    let from: Map<string, Rectangle> | null = null;
    const place = around && placeOf(drawn.scene, around.id);
    const was = around && before && placeOf(before.scene, around.id);
    if (before) {
      const [dx, dy] = place && was ? [place.x - was.x, place.y - was.y] : [0, 0];
      from = new Map();
      before.scene.clusters.forEach(({ group, ...rectangle }) =>
        from!.set(group.id, { ...rectangle, x: rectangle.x + dx, y: rectangle.y + dy }),
      );
      before.scene.places.forEach((rectangle, i) =>
        from!.set(before.scene.picture.boxes[i]!.id, { ...rectangle, x: rectangle.x + dx, y: rectangle.y + dy }),
      );
    }
    const overview = overviewOf(this.drawn, this.palette);
    const whole = this.surface.whole;
    this.surface.show(this.drawn, overview, around ? from : null);
    this.map.show(overview, drawn.scene.width, drawn.scene.height);
    if (place && was) this.surface.anchor(was, place);
    if (!around) this.listRows(); // otherwise they were listed when the group was opened
    if (!before) this.surface.begin();
    else if (whole && this.surface.keepWhole()) bring = false;
    if (place && bring) this.surface.reveal(place, true, false);
    if (node >= 0 || this.sought >= 0) this.revealNode(node >= 0 ? node : this.sought);
    this.sought = -1;
    this.map.frame(this.surface.view);
    this.describe();
    this.tree.select(this.state.selection.nodes, this.state.selection.node, true);
  }

  private listRows(): void {
    const { shown, hierarchy: tree } = this;
    if (!shown || !tree) return;
    this.rows = rowsOf(tree, this.open);
    this.tree.show(this.rows, rowTexts(this.state, shown));
  }

  private emphasised(scene: Scene): Drawn["emphasis"] {
    const { graph, selection } = this.state;
    return graph === this.shown && graph && selection.node >= 0
      ? emphasis(graph, scene, selection.node, this.wishes.chain)
      : NOTHING;
  }

  /** Shows the selection, and scrolls to it if another view made it. */
  private select(follow: boolean): void {
    const { node, nodes } = this.state.selection;
    if (this.drawn)
      this.redraw({
        emphasis: this.emphasised(this.drawn.scene),
        found: this.boxesOf(this.drawn.scene.picture),
      });
    if (follow && node >= 0) this.revealNode(node);
    this.tree.select(nodes, node, follow || this.own);
  }

  private revealNode(node: number): void {
    if (!this.drawn) this.sought = node;
    const box = this.drawn?.scene.picture.boxOf(node) ?? -1;
    if (box >= 0) this.surface.reveal(this.drawn!.scene.places[box]!);
  }

  /** Marks what the search found. */
  private mark(): void {
    if (this.drawn) this.redraw({ found: this.boxesOf(this.drawn.scene.picture) });
  }

  /** The boxes with search results, and with the selected nodes if there are several. */
  private boxesOf(seen: Picture): Set<number> {
    const { graph, selection } = this.state;
    const several = graph === this.shown && selection.nodes.length > 1 ? selection.nodes : [];
    return new Set([...this.context.search.nodes, ...several].map((node) => seen.boxOf(node)));
  }

  private redraw(change: Partial<Drawn>): void {
    if (!this.drawn) return;
    const recolour = change.colouring !== undefined;
    this.drawn = { ...this.drawn, ...change };
    const overview = recolour ? overviewOf(this.drawn, this.palette) : null;
    if (overview) this.map.show(overview, this.drawn.scene.width, this.drawn.scene.height);
    this.surface.show(this.drawn, overview, null);
    this.describe();
  }

  /** Draws with another setting. */
  wished(what: Wish): void {
    if (what === "outline") {
      this.box.classList.toggle("outlined", this.wishes.outline);
      this.bar.querySelector('[data-toggle="outline"]')?.setAttribute("aria-pressed", String(this.wishes.outline));
    } else if (what === "by") this.recolour();
    else if (what === "flat") {
      this.drawn = null;
      void this.lay(null, this.state.selection.node);
    } else if (what === "aliases") this.redraw({ aliases: this.wishes.aliases });
    else this.select(false);
  }

  private recolour(): void {
    const coming = loadColours(this.state, this.context.host);
    const done = (): void => {
      if (this.shown && this.drawn)
        this.redraw({ colouring: colouring(this.state, this.shown, this.drawn.scene.picture.boxes, this.wishes.by) });
    };
    if (coming)
      coming.then(done, (error: unknown) =>
        replace(this.note, `What the colours show could not be loaded: ${String(error)}`),
      );
    else done();
  }

  private retheme(): void {
    this.palette = readPalette(this.box);
    this.surface.repaint(this.palette);
    if (this.drawn) this.redraw({ colouring: this.drawn.colouring });
  }

  /** The legend, and the canvas's label for screen readers. */
  private describe(): void {
    const { drawn } = this;
    if (!drawn) return;
    const { scene } = drawn;
    const has = (kind: string): boolean => scene.routes.some((route) => route.kind === kind);
    const { boxes: drawnBoxes } = scene.picture;
    replace(
      this.keys,
      this.painting && paintingKey(this.painting, this.shown!, this.state.stage?.name ?? ""),
      legend(drawn.colouring, {
        lanes: new Set(drawnBoxes.map(({ lane }) => lane)),
        across: has("across"),
        alias: this.wishes.aliases && has("alias"),
        marks: MARKS.filter((mark) => drawnBoxes.some(({ marks }) => marks[mark] > 0)),
      }),
    );
    this.surface.canvas.setAttribute(
      "aria-label",
      `Drawing of ${boxes(scene.places.length)}. The outline lists the same nodes. Arrow keys pan, plus and minus zoom, and 0 fits the drawing.`,
    );
  }

  private click(hit: Hit | null): void {
    const { drawn } = this;
    if (!drawn) return;
    if (hit?.kind === "title") return this.openGroup(drawn.scene.clusters[hit.cluster]!.group, false, true);
    if (hit?.kind === "edge") return;
    const box = hit && drawn.scene.picture.boxes[hit.box]!;
    if (box?.group) return this.openGroup(box.group, true, true);
    this.own = true;
    if (box) this.state.openNode(box.node);
    else this.letGo();
    this.own = false;
  }

  /** Shows the outline's focused row on the canvas. */
  private point(row: Row | null): void {
    const { drawn } = this;
    if (!drawn) return;
    const box = !row
      ? -1
      : row.group
        ? drawn.scene.picture.boxes.findIndex(({ id }) => id === row.id)
        : drawn.scene.picture.boxOf(row.node, row.id.startsWith("backward") ? "backward" : "forward");
    this.surface.encircle(box);
    const place = box >= 0 ? drawn.scene.places[box] : row && placeOf(drawn.scene, row.id);
    if (place) this.surface.reveal(place, true, false);
  }

  private showTip(hit: Hit | null, x: number, y: number): void {
    this.tip.textContent = hit && this.drawn && this.shown ? tipOf(hit, this.drawn, this.shown) : "";
    placeTip(this.tip, x, y, this.surface.view);
  }
}
