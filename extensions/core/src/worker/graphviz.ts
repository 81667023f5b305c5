// The worker's whole program: DOT texts in, graphviz's JSON out. It is a bundle of its own, as graphviz is larger
// than everything else together and must not block the page.

import { type Format, Graphviz } from "@hpcc-js/wasm-graphviz";

// json0: positions without drawing operations; graphviz knows it, the type of the binding does not list it.
const JSON0 = "json0" as Format;
const ready = Graphviz.load();

self.addEventListener("message", async (event: MessageEvent<{ id: number; dots: string[] }>) => {
  const { id, dots } = event.data;
  try {
    const graphviz = await ready;
    self.postMessage({ id, answers: dots.map((dot) => graphviz.layout(dot, JSON0, "dot")) });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
});
