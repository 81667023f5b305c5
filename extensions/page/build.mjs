// The self-contained page, complete but for the recording: page.html with the viewer and graphviz in it. Whoever
// exports a recording (aotviz/widgets/html.py, the JupyterLab extension) fills in {{title}}, {{preamble}}, {{summary}}
// and {{recording}}.

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

/** What the page runs: it unzips the viewer, which is a third of its size that way, and starts it. */
const START = `
const letters = atob(document.getElementById("aotviz-viewer").textContent), zipped = new Uint8Array(letters.length);
for (let i = 0; i < zipped.length; i++) zipped[i] = letters.charCodeAt(i);
new Response(new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"))).blob().then((viewer) => {
  const script = document.createElement("script");
  script.src = URL.createObjectURL(new Blob([viewer], { type: "text/javascript" }));
  document.body.append(script);
});`;

/** `viewer` and `graphviz` are bundles: the page's own, and the worker's. */
export async function page(viewer, graphviz) {
  const text = START.trim();
  const zipped = (bytes) => gzipSync(bytes, { level: 9 }).toString("base64");
  const digest = createHash("sha256").update(text).digest("base64");
  const parts = {
    script: text,
    viewer: zipped(viewer),
    graphviz: zipped(graphviz),
    // This script, what it makes of the file itself, WebAssembly; no connections, no frames.
    policy: [
      "default-src 'none'", `script-src 'sha256-${digest}' blob: 'wasm-unsafe-eval'`, "worker-src blob:",
      "style-src 'unsafe-inline'", "base-uri 'none'", "form-action 'none'",
    ].join("; "),
  };
  const template = await readFile(new URL("page.html", import.meta.url), "utf8");
  return template.replace(/\{\{(policy|graphviz|viewer|script)\}\}/g, (_, name) => parts[name]);
}
