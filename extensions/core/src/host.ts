// What the workbench asks of the place it runs in. A place supplies heavy parts when they are first needed.

import type { Editor } from "./editor/types";

export interface Host {
  /** CodeMirror, as its own bundle. */
  editor(): Promise<Editor>;
  /** A worker that runs `worker/graphviz.ts`; rejects where none can be had. */
  graphvizWorker(): Promise<Worker>;
}
