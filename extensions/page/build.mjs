// Builds the page templates: page.html with the viewer, but without a recording. `page` is a self-contained file. The
// editor and graphviz come after the viewer in it, because they are needed later. `servedPage` is for a server that has
// these two: it is a fifth of the size. The viewer is not compressed, because unzipping it would delay the first
// picture. The exporters (aotviz/widgets/html.py, the JupyterLab extension) fill in {{title}}, {{preamble}},
// {{summary}} and {{recording}}.

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

/** Three bundles: the page's own, CodeMirror's, the worker's. */
export function page(viewer, editor, graphviz) {
  const held = (id, bytes) =>
    `<script type="text/plain" id="aotviz-${id}">${gzipSync(bytes, { level: 9 }).toString("base64")}</script>\n`;
  return filled(viewer, held("editor", editor) + held("graphviz", graphviz), "'none'");
}

export function servedPage(viewer) {
  return filled(viewer, "", "'self'");
}

/** `connections`: with whom the page may talk. */
async function filled(viewer, behind, connections) {
  const text = Buffer.from(viewer).toString().trim();
  if (/<\/script|<!--/i.test(text)) throw new Error("the viewer can't stand in HTML as it is: it would end the script");
  const parts = {
    viewer: text,
    behind,
    // Allows this script, what it creates from the bundles (the editor, a worker) and WebAssembly; no frames.
    policy: [
      "default-src 'none'",
      `script-src 'sha256-${createHash("sha256").update(text).digest("base64")}' blob: 'wasm-unsafe-eval'`,
      "worker-src blob:",
      `connect-src ${connections}`,
      "style-src 'unsafe-inline'",
      "base-uri 'none'",
      "form-action 'none'",
    ].join("; "),
  };
  const template = await readFile(new URL("page.html", import.meta.url), "utf8");
  return template.replace(/\{\{(policy|viewer|behind)\}\}/g, (_, name) => parts[name]);
}
