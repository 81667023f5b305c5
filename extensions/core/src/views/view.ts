// What a view is. A new view is one folder beside this file and one line in registry.ts.

import type { Host } from "../host";
import type { Layouter } from "../layout/layouter";
import type { Need } from "../model";
import type { State } from "../state";
import type { CompilationData } from "../wire";

export interface Context {
  readonly state: State;
  readonly host: Host;
  readonly layouter: Layouter;
  readonly root: Document | ShadowRoot; // where styles and focus live
}

export interface Mounted {
  /** Called after each change of the selection while the view is shown. */
  update(): void;
  destroy(): void;
}

export interface View {
  readonly id: string;
  readonly title: string;
  /** Whether a compilation that ran in eager has nothing for it: then it has no tab. */
  isEmpty?(compilation: CompilationData): boolean;
  /** A count for the tab, or "". */
  badge?(state: State): string;
  /**
   * What must be loaded before the view is mounted or updated, beside the compilation's stages and facts. Without
   * it, the selected graph. Asked again after each load, so it may depend on what is there.
   */
  needs?(state: State): readonly Need[];
  mount(parent: HTMLElement, context: Context): Mounted;
}
