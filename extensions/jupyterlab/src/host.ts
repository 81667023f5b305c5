// The editor and graphviz are files beside those of the plugins, fetched from the Jupyter server on first use.

import type { Host } from "@aotviz/core";

declare const GRAPHVIZ: string; // the worker's file name, defined by build.mjs

export const host: Host = {
  editor: async () => (await import("@aotviz/core/editor")).editor,
  graphvizWorker: () => Promise.resolve(new Worker(new URL(GRAPHVIZ, import.meta.url))),
};
