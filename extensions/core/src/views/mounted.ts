// A view that is shown, and what the host needs to know of a view that is loaded later.

import type { Search } from "../search/search";
import type { State } from "../state";
import type * as tools from "./tools";

export interface Mounted {
  /** Called after each change of the selection while the view is shown. */
  update(): void;
  destroy(): void;
}

export type Tools = typeof tools;

/** Shows a view that is loaded later (later.ts). */
export type LaterMount = (
  parent: HTMLElement,
  context: { readonly state: State; readonly search: Search },
  tools: Tools,
) => Mounted;
