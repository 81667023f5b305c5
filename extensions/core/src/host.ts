// What the workbench needs from its host page. The host supplies the large bundles on first use.

import type { Editor } from "./editor/types";

export interface Host {
  /** CodeMirror, as its own bundle. */
  editor(): Promise<Editor>;
  /** A worker that runs `worker/graphviz.ts`; rejects if it cannot be started. */
  graphvizWorker(): Promise<Worker>;
}
