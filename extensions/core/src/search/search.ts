// The one search of the workbench: what was typed, and which nodes of the open graph match. The graph marks these
// nodes, and a view with a table shows only the rows that match.

import type { Graph } from "../graph";
import type { State } from "../state";
import { SearchIndex } from "./nodes";

export class Search {
  private readonly listeners = new Set<() => void>();
  private typed = "";
  private typedIn = ""; // the view
  private index: { graph: Graph; index: SearchIndex } | null = null;
  private found: { graph: Graph; text: string; nodes: readonly number[] } | null = null;

  constructor(private readonly state: State) {}

  get text(): string {
    return this.typed;
  }

  /** What was typed while a view was open, which narrows its table; "" if it was typed in another view. */
  textIn(view: string): string {
    return view === this.typedIn ? this.typed : "";
  }

  /** The nodes of the open graph that match, in order. */
  get nodes(): readonly number[] {
    const { graph } = this.state;
    if (!graph || !this.typed.trim()) return [];
    if (this.found?.graph !== graph || this.found.text !== this.typed)
      this.found = { graph, text: this.typed, nodes: this.indexOf(graph).find(this.typed) };
    return this.found.nodes;
  }

  /** The matching node whose whole name was typed, or -1. */
  get exact(): number {
    const { graph } = this.state;
    return graph ? this.indexOf(graph).named(this.typed, this.nodes) : -1;
  }

  set(text: string): void {
    if (text === this.typed) return;
    this.typed = text;
    this.typedIn = this.state.selection.view;
    for (const listener of [...this.listeners]) listener();
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private indexOf(graph: Graph): SearchIndex {
    if (this.index?.graph !== graph) this.index = { graph, index: new SearchIndex(this.state, graph) };
    return this.index.index;
  }
}
