declare module "zipped:graphviz" {
  /** Graphviz's WebAssembly: base64 of gzip, put there by extensions/graphviz.mjs. */
  const base64: string;
  export default base64;
}
