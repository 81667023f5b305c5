// The one shared selection: which compilation, stage, graph, view and node the reader is looking at. Views read it
// and change it here, never each other.

import type { Graph, Node, Recording } from "./model";
import type { CompilationData, StageRecord } from "./wire";

export interface Selection {
  readonly compilation: number;
  readonly stage: number;
  readonly role: string; // the graph of the stage, "" if it has none
  readonly view: string;
  readonly node: number; // index in the graph, or -1
}

export class State {
  private readonly listeners = new Set<(now: Selection, before: Selection) => void>();
  private current: Selection = { compilation: 0, stage: 0, role: "", view: "code", node: -1 };

  constructor(readonly recording: Recording) {
    this.current = { ...this.current, ...this.opening(0) };
  }

  get selection(): Selection {
    return this.current;
  }

  get compilation(): CompilationData {
    return this.recording.data.compilations[this.current.compilation]!;
  }

  get stage(): StageRecord | undefined {
    return this.compilation.stages[this.current.stage];
  }

  get graph(): Graph | null {
    return this.stage ? this.recording.graph(this.compilation, this.stage, this.current.role) : null;
  }

  get node(): Node | null {
    return this.graph?.nodes[this.current.node] ?? null;
  }

  subscribe(listener: (now: Selection, before: Selection) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  openCompilation(compilation: number): void {
    this.set({ compilation, node: -1, ...this.opening(compilation) });
  }

  /** Goes to a stage; the selected node goes along where the new graph has the same value. */
  openStage(stage: number, role?: string): void {
    const record = this.compilation.stages[stage];
    if (!record) return;
    const roles = [...record.graphs.keys()];
    const kept = role ?? this.current.role;
    const next = roles.includes(kept) ? kept : roles[0] ?? "";
    this.set({ stage, role: next, node: this.follow(record, next) });
  }

  openRole(role: string): void {
    this.openStage(this.current.stage, role);
  }

  openView(view: string): void {
    this.set({ view });
  }

  openNode(node: number): void {
    this.set({ node });
  }

  private set(change: Partial<Selection>): void {
    const before = this.current;
    this.current = { ...before, ...change };
    for (const listener of [...this.listeners]) listener(this.current, before);
  }

  /** The first stage that has a graph, else the first. */
  private opening(compilation: number): Pick<Selection, "stage" | "role"> {
    const stages = this.recording.data.compilations[compilation]?.stages ?? [];
    const stage = Math.max(0, stages.findIndex((record) => record.graphs.size > 0));
    return { stage, role: [...(stages[stage]?.graphs.keys() ?? [])][0] ?? "" };
  }

  private follow(stage: StageRecord, role: string): number {
    const node = this.node;
    const graph = this.recording.graph(this.compilation, stage, role);
    if (!node || !graph) return -1;
    const same = graph.nodes.filter((other) => node.valueIndex >= 0 && other.valueIndex === node.valueIndex);
    const found = same.find((other) => other.name === node.name) ?? same[0]
      ?? graph.nodes.find((other) => other.name === node.name && other.target === node.target);
    return found?.index ?? -1;
  }
}
