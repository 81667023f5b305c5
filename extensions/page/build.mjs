// The pages that show one recording, complete but for it: page.html with the viewer in it. `page` is a file that needs
// nothing else: the editor and graphviz stand behind the viewer, since they can wait. `servedPage` is what a server
// that has these two sends: a fifth of the size. The viewer stands there as it is, since unzipping it would delay the
// first picture. Whoever exports a recording (aotviz/widgets/html.py, the JupyterLab extension) fills in {{title}},
// {{preamble}}, {{summary}} and {{recording}}.

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
    // This script, what it makes of the bundles (the editor, a worker), WebAssembly; no frames.
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
