// Builds the prebuilt ("federated") extension into labextension/, in the form that JupyterLab expects
// under share/jupyter/labextensions/. Run `npm run build:jupyterlab`.
//
//   package.json                 names the container, for JupyterLab and `jupyter labextension list`
//   static/remoteEntry.*.js      the container (src/container.js)
//   static/plugins.*.js          the plugins: small, loaded when JupyterLab starts
//   static/*.js                  the workbench, the editor and graphviz: loaded when a recording is opened

import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

import { zippedGraphviz } from "../graphviz.mjs";
import { page } from "../page/build.mjs";
import { shortStyles } from "../styles.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "labextension");
const about = JSON.parse(await readFile(join(here, "package.json"), "utf8"));
const fromJupyterLab = /^@(jupyterlab|lumino)\//;
const packages = Object.keys(about.devDependencies).filter((name) => fromJupyterLab.test(name));

/** Imports of JupyterLab's own packages become a look-up in what JupyterLab shares with us. */
const shared = {
  name: "shared",
  setup(bundler) {
    bundler.onResolve({ filter: fromJupyterLab }, ({ path }) => {
      if (!packages.includes(path)) throw new Error(`${path} is not in devDependencies of ${about.name}`);
      return { path, namespace: "shared" };
    });
    bundler.onLoad({ filter: /.*/, namespace: "shared" }, ({ path }) => ({
      contents: `module.exports = window._JUPYTERLAB[${JSON.stringify(about.name)}].packages[${JSON.stringify(path)}];`,
      loader: "js",
    }));
  },
};

const common = {
  bundle: true,
  minify: true,
  write: false,
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  loader: { ".svg": "text", ".html": "text" },
  outdir: join(target, "static"),
  entryNames: "[name].[hash]",
  chunkNames: "[name].[hash]",
};
const files = [];
async function bundle(options) {
  const { outputFiles } = await build({ ...common, ...options, plugins: [shortStyles, ...(options.plugins ?? [])] });
  files.push(...outputFiles.map(({ path, contents }) => [basename(path), contents]));
  return basename(outputFiles[0].path);
}

await rm(target, { recursive: true, force: true });
await mkdir(join(target, "static"), { recursive: true });
const graphviz = await bundle({
  entryPoints: { graphviz: join(here, "../core/src/worker/graphviz.ts") },
  format: "iife",
  plugins: [zippedGraphviz],
});
const script = await build({
  ...common,
  entryPoints: [join(here, "../page/src/index.ts")],
  format: "iife",
  plugins: [shortStyles],
});
const editor = await build({ ...common, entryPoints: [join(here, "../core/src/editor/index.ts")], format: "esm" });
const exported = Buffer.from(await page(script.outputFiles[0].contents, editor.outputFiles[0].contents, files[0][1]));
const exportedName = `page.${createHash("sha256").update(exported).digest("hex").slice(0, 8)}.html`;
files.push([exportedName, exported]);
const plugins = await bundle({
  entryPoints: { plugins: join(here, "src/index.ts") },
  format: "esm",
  splitting: true,
  plugins: [shared],
  define: { GRAPHVIZ: JSON.stringify(graphviz), PAGE: JSON.stringify(exportedName) },
});
const container = await bundle({
  entryPoints: { remoteEntry: join(here, "src/container.js") },
  format: "iife",
  define: { NAME: JSON.stringify(about.name), PACKAGES: JSON.stringify(packages), PLUGINS: JSON.stringify(plugins) },
});
for (const [name, contents] of files) {
  await writeFile(join(target, "static", name), contents);
  console.log(`${name.padEnd(26)} ${(contents.length / 1000).toFixed(1).padStart(8)} kB`);
}
const { name, version, description, license, devDependencies } = about;
await writeFile(
  join(target, "package.json"),
  JSON.stringify(
    {
      name,
      version,
      description,
      license,
      dependencies: Object.fromEntries(packages.map((key) => [key, devDependencies[key]])),
      jupyterlab: {
        extension: true,
        outputDir: "labextension",
        _build: { load: `static/${container}`, extension: "./extension" },
      },
    },
    null,
    2,
  ) + "\n",
);
await writeFile(
  join(target, "install.json"),
  JSON.stringify(
    {
      packageManager: "python",
      packageName: "aotviz",
      uninstallInstructions: "Use your Python package manager (pip, conda, uv …) to uninstall the package aotviz.",
    },
    null,
    2,
  ) + "\n",
);
