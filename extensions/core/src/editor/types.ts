// The editor's interface for the views, so that the core bundle does not depend on CodeMirror.

import type { Span } from "../code/diff";
import type { Graph } from "../graph";
import type { Need } from "../model";
import type { State } from "../state";
import type { Doors, Step } from "../tour/steps";
import type { LaterMount } from "../views/mounted";
import type { Flame } from "../views/timeline/flame";

export interface Note {
  readonly first: number; // lines, from 0, inclusive
  readonly last: number;
  readonly text: string;
}

export interface ReaderOptions {
  readonly parent: HTMLElement;
  readonly root: Document | ShadowRoot;
  readonly text: string;
  readonly label: string; // for assistive technology
  readonly notes?: readonly Note[];
  readonly onLine?: (line: number) => void; // from 0; clicked or reached by keyboard
}

export interface Reader {
  /** Marks lines (from 0) and brings the first into view. */
  mark(lines: readonly number[], scroll: boolean): void;
  destroy(): void;
}

export interface DiffOptions {
  readonly parent: HTMLElement;
  readonly root: Document | ShadowRoot;
  readonly before: string;
  readonly after: string;
  readonly spans: readonly Span[];
  readonly sideBySide: boolean;
  readonly onLine?: (line: number) => void; // of `after`, from 0
}

/** What views need later than the first picture. */
export interface Editor {
  /** A program before and after each stage, by the id of its term. */
  readonly programs: Readonly<Record<string, readonly [string, string]>>;
  reader(options: ReaderOptions): Reader;
  diff(options: DiffOptions): { destroy(): void };
  /** The compile time by module and line; `tell` is given what the readout says. */
  flame(state: State, tell: (words: (HTMLElement | string)[]) => void): Flame;
  /** The views that are loaded later, by id. */
  /** The bytes that are alive while each node runs; null for one that does not, and without a plan. */
  alive(state: State, graph: Graph): readonly (number | null)[];
  readonly views: Readonly<Record<string, LaterMount>>;
  /** The steps of the tour through the open compilation, and what must be loaded for them. */
  readonly tour: {
    needsOf(state: State): Need[];
    stepsOf(state: State, doors: Doors): Step[];
  };
}
