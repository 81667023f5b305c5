// The worker's whole program: lanes in, layouts out. It is a bundle of its own, as graphviz is larger than everything
// else together and must not block the page.

import { type Format, Graphviz } from "@hpcc-js/wasm-graphviz";
import zipped from "zipped:graphviz";

import { fromBase64, unzipped } from "../bytes";
import { fromDot, toDot } from "../layout/dot";
import { layered } from "../layout/layered";
import type { Answer, Question } from "../layout/layouter";

// json0: positions without drawing operations; graphviz knows it, the type of the binding does not list it.
const JSON0 = "json0" as Format;
const ready = start();
void ready.then((graphviz) => graphviz.layout("digraph { a -> b }", JSON0, "dot")); // the first layout of all is slow

self.addEventListener("message", async (event: MessageEvent<Question>) => {
  const { id, lanes, plain } = event.data;
  try {
    const graphviz = plain ? null : await ready;
    const layouts = lanes.map((lane) => (graphviz ? fromDot(lane, graphviz.layout(toDot(lane), JSON0, "dot")) : layered(lane)));
    self.postMessage({ id, layouts } satisfies Answer);
  } catch (error) {
    self.postMessage({ id, error: String(error) } satisfies Answer);
  }
});

/** Unzips graphviz and compiles it; its package takes it from where this puts it. */
async function start(): Promise<Graphviz> {
  (self as unknown as { unzippedGraphviz: Uint8Array }).unzippedGraphviz = new Uint8Array(await new Response(unzipped(fromBase64(zipped))).arrayBuffer());
  return Graphviz.load();
}
