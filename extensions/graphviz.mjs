// The graphviz package contains its WebAssembly as text in its own encoding, compressed with zstd, and unpacks it in
// JavaScript, which takes half of the worker's start. This script replaces it by the same WebAssembly as base64 of
// gzip, which browsers unpack natively. The size of the bundle does not change.

import { readFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

const ENTRY = /wasm-graphviz[\\/]dist[\\/]index\.js$/;
const UNPACKED = /[\w$]+\?\?=[\w$]+\([\w$]+\(([\w$]+)\)\),([\w$]+)\(\{wasmBinary:[\w$]+,/; // of its function that loads

/** The bytes that the package compiles, whatever their encoding in the package. */
async function unpacked(path) {
  const compile = WebAssembly.instantiate;
  let bytes;
  WebAssembly.instantiate = (given, imports) => {
    bytes = given;
    return compile.call(WebAssembly, given, imports);
  };
  try {
    await (await import(path)).Graphviz.load();
  } finally {
    WebAssembly.instantiate = compile;
  }
  if (!(bytes instanceof Uint8Array)) throw new Error(`${path} compiled no WebAssembly when it was loaded`);
  return bytes;
}

export const zippedGraphviz = {
  name: "zipped graphviz",
  setup(build) {
    build.onLoad({ filter: ENTRY }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      const found = UNPACKED.exec(source);
      if (!found)
        throw new Error(`${path} unpacks its WebAssembly in a way that extensions/graphviz.mjs does not know`);
      const [loading, text, start] = found;
      const letters = source.indexOf(`${text}='`) + text.length + 1; // a literal of nothing but quotable letters
      const end = source.indexOf("'", letters + 1) + 1;
      const without = `${source.slice(0, letters)}''${source.slice(end)}`;
      const contents = without.replace(loading, () => `${start}({wasmBinary:globalThis.unzippedGraphviz,`);
      if (contents.length > 200_000) throw new Error(`${path} still has its WebAssembly in it`);
      return { contents, loader: "js" };
    });
    build.onResolve({ filter: /^zipped:graphviz$/ }, ({ path }) => ({ path, namespace: "zipped" }));
    build.onLoad({ filter: /.*/, namespace: "zipped" }, async () => {
      const { path } = await build.resolve("@hpcc-js/wasm-graphviz", {
        kind: "import-statement",
        resolveDir: import.meta.dirname,
      });
      return { contents: gzipSync(await unpacked(path), { level: 9 }), loader: "base64" };
    });
  },
};
