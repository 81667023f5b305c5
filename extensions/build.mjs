// Builds the files that the Python package serves, into aotviz/widgets/static/:
//   core.js.gz editor.js.gz graphviz.js.gz   bundles that the kernel sends to a widget on demand
//   widget.js                                the anywidget entry, which knows the bundles by their hash
//   page.html served.html                    the static page, which an export fills in; the one that a server sends
// Run `npm ci && npm run build`.

import { createHash } from "node:crypto";
import { mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";

import { zippedGraphviz } from "./graphviz.mjs";
import { page, servedPage } from "./page/build.mjs";
import { shortStyles } from "./styles.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "aotviz", "widgets", "static");

async function bundle(entry, options = {}) {
  const result = await build({
    entryPoints: [join(here, entry)],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    logLevel: "warning",
    ...options,
    plugins: [shortStyles, ...(options.plugins ?? [])],
  });
  return result.outputFiles[0].contents;
}

await mkdir(target, { recursive: true });
const before = await readdir(target);

const hashes = {};
const bundles = {};
const sizes = [];
const written = new Set();
async function write(name, bytes) {
  const whole = join(target, `.${process.pid}.${name}`); // what reads the folder meanwhile finds the file from before
  await writeFile(whole, bytes);
  await rename(whole, join(target, name));
  written.add(name);
  sizes.push([name, bytes.length]);
}

for (const [name, entry, options] of [
  ["core.js", "core/src/index.ts", {}],
  ["editor.js", "core/src/editor/index.ts", {}],
  ["graphviz.js", "core/src/worker/graphviz.ts", { format: "iife", plugins: [zippedGraphviz] }],
]) {
  const bytes = (bundles[name] = await bundle(entry, options));
  hashes[name] = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
  sizes.push([`${name} (unzipped)`, bytes.length]);
  await write(`${name}.gz`, gzipSync(bytes, { level: 9 }));
}
await write("widget.js", await bundle("widget/src/index.ts", { define: { HASHES: JSON.stringify(hashes) } }));
const viewer = await bundle("page/src/index.ts", { format: "iife" });
await write("page.html", Buffer.from(await page(viewer, bundles["editor.js"], bundles["graphviz.js"])));
await write("served.html", Buffer.from(await servedPage(viewer)));

for (const name of before) if (!written.has(name)) await rm(join(target, name), { force: true });
for (const [name, size] of sizes) console.log(`${name.padEnd(26)} ${(size / 1000).toFixed(1).padStart(8)} kB`);
