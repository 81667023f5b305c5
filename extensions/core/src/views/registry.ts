// The views of the workbench, in the order of their tabs.

import { aliasing } from "./aliasing";
import { backward } from "./backward";
import { code } from "./code";
import { compared } from "./compared";
import { compilations } from "./compilations";
import { diff } from "./diff";
import { events } from "./events";
import { evidence } from "./evidence";
import { graph } from "./graph";
import { memory } from "./memory";
import { overview } from "./overview";
import { records } from "./records";
import { saved } from "./saved";
import { timeline } from "./timeline";
import type { View } from "./view";
import { wrapper } from "./wrapper";
import type { State } from "../state";

export const VIEWS: readonly View[] = [
  overview,
  compared,
  code,
  diff,
  graph,
  backward,
  aliasing,
  events,
  saved,
  memory,
  wrapper,
  evidence,
  compilations,
  timeline,
  records,
];

/**
 * The view to show: the selected one, or, if the compilation has no such tab, the nearest one before it. The selection
 * stays as it is, so that the next compilation that has the view shows it again.
 */
export function viewOf(state: State): View {
  const shown = viewsOf(state);
  const selected = VIEWS.findIndex(({ id }) => id === state.selection.view);
  return VIEWS.slice(0, selected + 1).findLast((view) => shown.includes(view)) ?? shown[0]!;
}

/** The views for this kind of compilation that have something to show or may get it later. A program that ran in eager gets nothing more. */
export function viewsOf(state: State): readonly View[] {
  const { compilation, recording, selection } = state;
  const ended =
    compilation.error?.ran_in_eager && recording.has({ what: "compilation", compilation: selection.compilation });
  const views = VIEWS.filter((view) => view.applies?.(state) ?? true);
  return ended ? views.filter((view) => !view.isEmpty?.(compilation)) : views;
}
