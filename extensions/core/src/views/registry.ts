// The views of the workbench, in the order of their tabs.

import { aliasing } from "./aliasing";
import { code } from "./code";
import { compilations } from "./compilations";
import { diff } from "./diff";
import { evidence } from "./evidence";
import { graph } from "./graph";
import { saved } from "./saved";
import type { View } from "./view";
import { wrapper } from "./wrapper";
import type { State } from "../state";

export const VIEWS: readonly View[] = [code, diff, graph, aliasing, saved, wrapper, evidence, compilations];

/** The views that have something to show or may get it later. A program that ran in eager gets nothing more. */
export function viewsOf({ compilation, recording, selection }: State): readonly View[] {
  const ended =
    compilation.error?.ran_in_eager && recording.has({ what: "compilation", compilation: selection.compilation });
  return ended ? VIEWS.filter((view) => !view.isEmpty?.(compilation)) : VIEWS;
}
