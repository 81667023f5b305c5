// JupyterLab loads this file first: the "container" of module federation. It is written by hand because it is small,
// and because esbuild can then build everything else. JupyterLab runs this script, calls `init` with the packages that
// it shares, and calls `get` for the plugins. The plugins' bundle reads JupyterLab's packages from `packages` (see
// `shared` in build.mjs), so it must be loaded after `init`.

const base = new URL(".", document.currentScript.src).href;
const packages = {};
let shared = {};

/** A package of JupyterLab's: the version that is in use, else the newest; nothing where it shares none. */
async function obtain(name) {
  const versions = Object.entries(shared[name] ?? {});
  versions.sort(([a, x], [b, y]) => Number(!!y.loaded) - Number(!!x.loaded) || b.localeCompare(a, "en", { numeric: true }));
  const newest = versions[0];
  packages[name] = newest ? (await newest[1].get())() : {};
}

(window._JUPYTERLAB ??= {})[NAME] = {
  packages,
  init(scope) {
    shared = scope;
  },
  async get(module) {
    if (module !== "./extension") throw new Error(`${NAME} has no ${module}`);
    await Promise.all(PACKAGES.map(obtain));
    const { default: plugins } = await import(base + PLUGINS);
    return () => ({ __esModule: true, default: plugins });
  },
};
