// The one shared selection: which compilation, stage, graph, view and node the reader is looking at. Views read it
// and change it here, never each other. A selected compilation may still be loading from a kernel. The intended stage
// and node are kept, and selected when it arrives.

import type { Graph, Node } from "./graph";
import { type Need, previousGraph, type Recording } from "./model";
import { same } from "./live_updates";
import type { CompilationData, Painting, StageRecord } from "./wire";

export interface Selection {
  readonly compilation: number;
  readonly stage: number;
  readonly role: string; // the graph of the stage, "" if it has none
  readonly view: string;
  readonly node: number; // index in the graph, or -1; its facts are shown
  readonly nodes: readonly number[]; // all selected nodes of the graph, `node` among them
  readonly everyStage: boolean; // whether the rail also shows the stages that changed nothing
  readonly against: Against | null; // what the diff compares with; null for the previous stage
  readonly painting: string; // the label of the painting that colours the graph, or ""
  readonly beside: readonly Beside[]; // the graphs that are drawn beside the selected one
}

/**
 * A graph to draw beside the selected one, by names. What it does not name is as selected: `{ compilation }` is the
 * selected stage of another compilation, and `{ stage }` that stage of the selected one.
 */
export interface Beside {
  readonly compilation?: string; // id
  readonly stage?: string;
  readonly role?: string;
}

export const MOST_BESIDE = 2;

/** A graph to compare with: of the stage with that name, else of the stage with the selected stage's name. */
export interface Against {
  readonly compilation: number;
  readonly stage?: number;
  readonly role?: string;
}

/** A graph by its position. */
export interface Place {
  readonly compilation: number;
  readonly stage: number;
  readonly role: string;
}

/** A selection that outlives the page. It has names, which stay valid when numbers change. */
export interface Bookmark {
  readonly compilation?: string; // id
  readonly stage?: string; // name
  readonly role?: string;
  readonly view?: string;
  readonly node?: string; // name
  readonly stages?: string; // "all": the rail also shows the stages that changed nothing
  readonly painting?: string; // its label
  readonly paintings?: string; // how many there were: a later one is opened at first
  readonly beside?: string; // JSON of Selection.beside
}

/** Properties that identify a node in another graph. */
interface Meant {
  readonly name: string;
  readonly target?: string;
  readonly valueIndex?: number;
}

export class State {
  private readonly listeners = new Set<(now: Selection, before: Selection) => void>();
  private current: Selection = {
    compilation: 0,
    stage: 0,
    role: "",
    view: "code",
    node: -1,
    nodes: [],
    everyStage: false,
    against: null,
    painting: "",
    beside: [],
  };
  private opened = false; // whether a stage has been selected, which needs the loaded compilation
  // The first of these names that the compilation has is selected when it arrives.
  private meantStage: { names: readonly string[]; role: string } | null = null;
  private meantNode: Meant | null = null;
  private said = "";

  constructor(
    readonly recording: Recording,
    bookmark: Bookmark = {},
  ) {
    const position = recording.index.compilations.findIndex(({ id }) => id === bookmark.compilation);
    const compilation = Math.max(0, position);
    const asksForOne = bookmark.compilation === undefined ? (bookmark.stage ?? bookmark.node) : position >= 0;
    const first = recording.rowCount("overview") && !asksForOne ? "overview" : this.current.view;
    const view = bookmark.view ?? (recording.index.compared ? "compared" : first);
    this.current = {
      ...this.current,
      compilation,
      view,
      everyStage: bookmark.stages === "all",
      beside: besideIn(bookmark),
    };
    if (bookmark.stage !== undefined) this.meantStage = { names: [bookmark.stage], role: bookmark.role ?? "" };
    if (bookmark.node !== undefined) this.meantNode = { name: bookmark.node };
    const { paintings } = recording.index;
    const last = paintings[paintings.length - 1];
    const seen = bookmark.paintings ?? (Object.keys(bookmark).length ? paintings.length : 0);
    if (last && paintings.length > Number(seen)) this.mean(last);
    else if (bookmark.painting !== undefined) this.current = { ...this.current, painting: bookmark.painting };
    this.settle();
  }

  get selection(): Selection {
    return this.current;
  }

  get bookmark(): Bookmark {
    return {
      compilation: this.compilation.id,
      view: this.current.view,
      ...(this.stage && { stage: this.stage.name, role: this.current.role }),
      ...(this.node && { node: this.node.name }),
      ...(this.current.everyStage && { stages: "all" }),
      ...(this.painting && { painting: this.painting.label }),
      paintings: String(this.recording.index.paintings.length),
      ...(this.current.beside.length && { beside: JSON.stringify(this.current.beside) }),
    };
  }

  get compilation(): CompilationData {
    return this.recording.compilation(this.current.compilation);
  }

  get stage(): StageRecord | undefined {
    return this.compilation.stages[this.current.stage];
  }

  /** Null for a stage without a graph, and while the graph is loading. */
  get graph(): Graph | null {
    return this.stage ? this.recording.graph(this.compilation, this.stage, this.current.role) : null;
  }

  get node(): Node | null {
    return this.graph?.nodes[this.current.node] ?? null;
  }

  /** The user's paintings of the compilation. */
  get paintings(): readonly Painting[] {
    return this.recording.index.paintings.filter(({ compilation }) => compilation === this.compilation.id);
  }

  /** The painting that colours the graph, or null. */
  get painting(): Painting | null {
    return this.paintings.find(({ label }) => label === this.current.painting) ?? null;
  }

  /** The view for what is chosen next: the overview shows no stage and no node. */
  private get stageView(): string {
    return this.current.view === "overview" ? "code" : this.current.view;
  }

  /** What must be loaded for `graph`, or for the graph of another stage and role. */
  graphNeed(stage = this.current.stage, role = this.current.role): Need[] {
    return this.recording.graphNeed(this.current.compilation, stage, role);
  }

  /** What is new since the compilation was opened, in words; "" if nothing is. */
  get news(): string {
    return this.said;
  }

  subscribe(listener: (now: Selection, before: Selection) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * Goes to a stage of a compilation by its name, by default the selected one's. If the compilation lacks it, to the
   * nearest earlier stage that both have.
   */
  openCompilation(compilation: number, stage?: string): void {
    if (!this.recording.index.compilations[compilation]) return;
    if (compilation === this.current.compilation && this.opened && stage !== undefined) {
      this.openStage(this.compilation.stages.findIndex(({ name }) => name === stage));
      return;
    }
    if (stage !== undefined) this.meantStage = { names: [stage], role: this.current.role };
    else if (this.opened) {
      const before = this.compilation.stages.slice(0, this.current.stage + 1);
      this.meantStage = { names: before.map(({ name }) => name).reverse(), role: this.current.role };
    }
    this.opened = false;
    this.meantNode = null;
    this.said = "";
    this.set({ compilation, stage: 0, role: "", node: -1, view: this.stageView });
  }

  /** Goes to a stage. The node with the same value stays selected if the new graph has one. */
  openStage(stage: number, role?: string): void {
    const record = this.compilation.stages[stage];
    if (!record) return;
    this.meantNode = this.node ?? this.meantNode;
    this.set({ stage, role: roleOf(record, role ?? this.current.role), node: -1, view: this.stageView });
  }

  openRole(role: string): void {
    this.openStage(this.current.stage, role);
  }

  openView(view: string): void {
    this.set({ view });
  }

  /** Whether the rail also shows the stages that changed nothing. */
  showEveryStage(everyStage: boolean): void {
    this.set({ everyStage });
  }

  openNode(node: number): void {
    this.openNodes([node]);
  }

  /** Selects several nodes of the graph; the facts of the first are shown, unless one of them is already selected. */
  openNodes(nodes: readonly number[]): void {
    const known = nodes.filter((node) => this.graph?.nodes[node]);
    const node = known.includes(this.current.node) ? this.current.node : (known[0] ?? -1);
    this.meantNode = null;
    this.set({ node, nodes: known, ...(known.length && { view: this.stageView }) });
  }

  /** Goes to the node with this name, in a graph that may not be loaded yet. */
  openNamed(stage: number, role: string, name: string): void {
    const record = this.compilation.stages[stage];
    if (!record) return;
    this.meantNode = { name };
    this.set({ stage, role: roleOf(record, role), node: -1, view: this.stageView });
  }

  /** The same in any compilation, by the names of the stage and the node. */
  openIn(compilation: number, stage: string, role: string, name: string): void {
    if (!this.recording.index.compilations[compilation]) return;
    this.opened = false;
    this.meantStage = { names: [stage], role };
    this.meantNode = { name };
    this.said = "";
    this.set({ compilation, stage: 0, role: "", node: -1, view: this.stageView });
  }

  /** Colours the graph with a painting; "" for none. */
  openPainting(label: string): void {
    this.set({ painting: label });
  }

  /** Draws other graphs beside the selected one, at most MOST_BESIDE. */
  drawBeside(beside: readonly Beside[]): void {
    this.set({ beside: beside.slice(0, MOST_BESIDE) });
  }

  /** Takes a painting away. In a kernel it is taken from the recording. */
  async takeAway({ compilation, label }: Painting): Promise<void> {
    await this.recording.unpaint(compilation, label);
    await this.refresh();
  }

  /** Where a painting is to be opened. */
  private mean({ compilation, label, stage, graph, node }: Painting): void {
    const position = this.recording.index.compilations.findIndex(({ id }) => id === compilation);
    this.opened = false;
    this.meantStage = { names: [stage], role: graph };
    this.meantNode = node ? { name: node } : null;
    const at = { compilation: Math.max(0, position), stage: 0, role: "", node: -1, nodes: [] };
    this.current = { ...this.current, ...at, view: "graph", painting: label };
  }

  /** Sets what to compare with; null for the previous stage. */
  compareWith(against: Against | null): void {
    this.set({ against });
  }

  /** The graph to compare the selected one with, or null. Its compilation may not be loaded yet. */
  get opposite(): Place | null {
    const { against, compilation, stage, role } = this.current;
    if (!against) {
      const earlier = previousGraph(this.compilation, stage, role);
      return earlier && { compilation, ...earlier };
    }
    const { stages } = this.recording.compilation(against.compilation);
    const last = stages.findLastIndex(({ name, graphs }) => name === this.stage?.name && graphs.size > 0);
    const found = against.stage ?? last;
    const record = stages[found];
    return record && record.graphs.size
      ? { compilation: against.compilation, stage: found, role: roleOf(record, against.role ?? role) }
      : null;
  }

  /** What must be loaded for the comparison. */
  oppositeNeed(): Need[] {
    const { against } = this.current;
    const place = this.opposite;
    return [
      ...(against ? [{ what: "compilation", compilation: against.compilation } as const] : []),
      ...(place ? this.recording.graphNeed(place.compilation, place.stage, place.role) : []),
    ];
  }

  /** Called when a part of the recording has arrived: selects the intended stage and node. */
  arrived(): void {
    this.set({});
  }

  /** Loads what the kernel has recorded since, and keeps the selection. */
  async refresh(): Promise<void> {
    const before = this.recording.index.paintings;
    const news = await this.recording.refresh(this.current.compilation);
    if (!news) return;
    const added = this.recording.index.paintings.findLast((one) => !before.some((other) => same(one, other)));
    this.said = news.said || this.said;
    const { against } = this.current;
    const opposite = against ? (news.moved[against.compilation] ?? -1) : -1;
    this.set({
      compilation: Math.max(0, news.moved[this.current.compilation] ?? 0),
      against: against && opposite >= 0 ? { ...against, compilation: opposite } : null,
    });
    if (!added) return;
    const shown = this.current;
    this.mean(added);
    this.set({}, shown);
  }

  private set(change: Partial<Selection>, before = this.current): void {
    this.current = { ...this.current, ...(change.node !== undefined && { nodes: [] }), ...change };
    this.settle();
    for (const listener of [...this.listeners]) listener(this.current, before);
  }

  /** Loads parts; the panel reports failures. */
  private fetch(needs: readonly Need[]): void {
    this.recording.load(needs)?.then(
      () => this.arrived(),
      () => undefined,
    );
  }

  /** Selects the intended stage and node if they are loaded. */
  private settle(): void {
    const { compilation, recording } = this;
    let { stage, role, node } = this.current;
    this.fetch([{ what: "compilation", compilation: this.current.compilation }]);
    if (recording.index.compilations.some(({ because }) => because.length)) this.fetch([{ what: "rows", kind: "why" }]);
    if (!this.opened && compilation.stages.length) {
      const names = compilation.stages.map(({ name }) => name);
      const meant = names.indexOf(this.meantStage?.names.find((name) => names.includes(name)) ?? "");
      const drawn = compilation.stages.findIndex((record) => record.graphs.size > 0);
      stage = Math.max(0, meant >= 0 ? meant : drawn);
      role = roleOf(compilation.stages[stage]!, this.meantStage?.role ?? "");
      this.opened = true;
      this.meantStage = null;
    }
    this.fetch(this.graphNeed(stage, role)); // the facts, the search and most views need it
    const record = compilation.stages[stage];
    const graph = record && recording.graph(compilation, record, role);
    if (this.meantNode && graph && node < 0) {
      node = follow(this.meantNode, graph);
      this.meantNode = null;
    }
    let { beside } = this.current;
    const known = beside.filter(
      (one) => one.compilation === undefined || recording.index.compilations.some(({ id }) => id === one.compilation),
    );
    if (known.length < beside.length) beside = known;
    const nodes = node < 0 || this.current.nodes.includes(node) ? this.current.nodes : [node];
    this.current = { ...this.current, stage, role, node, nodes, beside };
  }
}

function roleOf(stage: StageRecord, wanted: string): string {
  const roles = [...stage.graphs.keys()];
  return roles.includes(wanted) ? wanted : (roles[0] ?? "");
}

/** What a bookmark, which may be a stranger's, says of the graphs beside the selected one. */
function besideIn({ beside = "[]" }: Bookmark): Beside[] {
  let read: unknown;
  try {
    read = JSON.parse(beside);
  } catch {
    return [];
  }
  const names = (one: unknown): Beside =>
    Object.fromEntries(
      Object.entries(one ?? {}).filter(
        ([key, name]) => ["compilation", "stage", "role"].includes(key) && typeof name === "string",
      ),
    );
  const all = Array.isArray(read) ? read.map(names) : [];
  return all.filter((one) => Object.keys(one).length).slice(0, MOST_BESIDE);
}

function follow({ name, target, valueIndex = -1 }: Meant, graph: Graph): number {
  const same = graph.nodes.filter((other) => valueIndex >= 0 && other.valueIndex === valueIndex);
  const found =
    same.find((other) => other.name === name) ??
    same[0] ??
    graph.nodes.find((other) => other.name === name && (target === undefined || other.target === target));
  return found?.index ?? -1;
}
