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

export const VIEWS: readonly View[] = [code, diff, graph, aliasing, saved, wrapper, evidence, compilations];
