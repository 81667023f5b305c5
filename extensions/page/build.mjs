// The self-contained page, complete but for the recording: page.html with the viewer and graphviz in it. Whoever
// exports a recording (aotviz/widgets/html.py, the JupyterLab extension) fills in {{title}}, {{preamble}}, {{summary}}
// and {{recording}}.

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

/** `script` and `graphviz` are bundles: the page's own, and the worker's. */
export async function page(script, graphviz) {
  const text = Buffer.from(script).toString().replaceAll("</script", "<\\/script").trim();
  const digest = createHash("sha256").update(text).digest("base64");
  const parts = {
    script: text,
    graphviz: gzipSync(graphviz, { level: 9 }).toString("base64"),
    // This script, its own workers, WebAssembly in them; no connections, no frames.
    policy: [
      "default-src 'none'", `script-src 'sha256-${digest}' 'wasm-unsafe-eval'`, "worker-src blob:",
      "style-src 'unsafe-inline'", "base-uri 'none'", "form-action 'none'",
    ].join("; "),
  };
  const template = await readFile(new URL("page.html", import.meta.url), "utf8");
  return template.replace(/\{\{(policy|graphviz|script)\}\}/g, (_, name) => parts[name]);
}
