// The heavy parts, as files beside the plugins' own: each is fetched from the Jupyter server when it is first needed.

import type { Host } from "@aotviz/core";

declare const GRAPHVIZ: string; // the worker's file name, put in by build.mjs

export const host: Host = {
  editor: async () => (await import("@aotviz/core/editor")).editor,
  graphvizWorker: () => Promise.resolve(new Worker(new URL(GRAPHVIZ, import.meta.url))),
};
