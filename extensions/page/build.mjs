// The self-contained page, complete but for the recording: page.html with the viewer, the editor and graphviz in it.
// What the first picture needs stands before the script, and what can wait, behind it. Whoever exports a recording
// (aotviz/widgets/html.py, the JupyterLab extension) fills in {{title}}, {{preamble}}, {{summary}} and {{recording}}.

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

/** What the page runs: it unzips the viewer, which is a third of its size that way, and starts it. */
const START = `
const text = document.getElementById("aotviz-viewer").textContent;
const zipped = Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const unzipping = new DecompressionStream("gzip"), writer = unzipping.writable.getWriter();
writer.write(zipped);
writer.close();
new Response(unzipping.readable).text().then((viewer) => {
  const script = document.createElement("script");
  script.textContent = viewer;
  document.body.append(script);
});`;

/** Three bundles: the page's own, CodeMirror's, the worker's. */
export async function page(viewer, editor, graphviz) {
  const start = START.trim();
  const zipped = (bytes) => gzipSync(bytes, { level: 9 }).toString("base64");
  const hashed = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  const parts = {
    script: start,
    viewer: zipped(viewer),
    editor: zipped(editor),
    graphviz: zipped(graphviz),
    // These two scripts, what they make of the file itself, WebAssembly; no connections, no frames.
    policy: [
      "default-src 'none'", `script-src ${hashed(start)} ${hashed(viewer)} blob: 'wasm-unsafe-eval'`, "worker-src blob:",
      "style-src 'unsafe-inline'", "base-uri 'none'", "form-action 'none'",
    ].join("; "),
  };
  const template = await readFile(new URL("page.html", import.meta.url), "utf8");
  return template.replace(/\{\{(policy|editor|graphviz|viewer|script)\}\}/g, (_, name) => parts[name]);
}
