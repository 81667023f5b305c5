// The interface of a view. A new view is a folder beside this file and a line in registry.ts.

import type { Host } from "../host";
import type { Layouter } from "../layout/layouter";
import type { Need } from "../model";
import type { Search } from "../search/search";
import type { State } from "../state";
import type { CompilationData } from "../wire";
import type { Mounted } from "./mounted";

export interface Context {
  readonly state: State;
  readonly host: Host;
  readonly layouter: Layouter;
  readonly root: Document | ShadowRoot; // where styles and focus live
  readonly search: Search;
}

export type { Mounted };

export interface View {
  readonly id: string;
  readonly title: string;
  /** Whether it is about the whole recording: the selected stage and node are not shown beside it. */
  readonly isWhole?: boolean;
  /** Whether there is a tab for the view: whether it is for this compilation, or recording; always, by default. */
  applies?(state: State): boolean;
  /** Whether the view has nothing to show for a compilation that ran in eager; then it has no tab. */
  isEmpty?(compilation: CompilationData): boolean;
  /** A count for the tab, or "". */
  badge?(state: State): string;
  /**
   * What must be loaded before the view is mounted or updated, besides the compilation's stages and facts. The default
   * is the selected graph. It is called again after each load, so it may depend on loaded parts.
   */
  needs?(state: State): readonly Need[];
  mount(parent: HTMLElement, context: Context): Mounted;
}
