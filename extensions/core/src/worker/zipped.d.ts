declare module "zipped:graphviz" {
  /** Graphviz's WebAssembly: base64 of gzip, from extensions/graphviz.mjs. */
  const base64: string;
  export default base64;
}
