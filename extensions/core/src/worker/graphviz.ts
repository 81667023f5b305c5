// The program of the worker, which turns lanes into layouts. It is a separate bundle because graphviz is larger than
// everything else together, and must not block the page.

import { type Format, Graphviz } from "@hpcc-js/wasm-graphviz";
import zipped from "zipped:graphviz";

import { fromBase64, unzipped } from "../bytes";
import { fromDot, toDot } from "../layout/dot";
import { layered } from "../layout/layered";
import type { Answer, Question } from "../layout/layouter";
import type { LaneInput, LaneLayout } from "../layout/placed";
import { warmupGraph } from "../layout/graphviz_warmup";

// json0 has positions without drawing operations. Graphviz supports it, but the binding's type does not list it.
const JSON0 = "json0" as Format;
const REHEARSALS = 10;
const ready = start();
ready.then(rehearse, () => undefined); // a request for a layout reports the error

self.addEventListener("message", async (event: MessageEvent<Question>) => {
  const { id, lanes, plain } = event.data;
  try {
    const graphviz = plain ? null : await ready;
    const layouts = lanes.map((lane) => (graphviz ? routed(graphviz, lane) : layered(lane)));
    self.postMessage({ id, layouts } satisfies Answer);
  } catch (error) {
    self.postMessage({ id, error: String(error) } satisfies Answer);
  }
});

function routed(graphviz: Graphviz, lane: LaneInput): LaneLayout {
  return fromDot(lane, graphviz.layout(toDot(lane), JSON0, "dot"));
}

/**
 * Lays out an example graph. The browser compiles a WebAssembly function at its first call, and optimises it only after
 * many calls: the first opened module took seven times as long as the third. Requests are answered in between.
 */
async function rehearse(graphviz: Graphviz): Promise<void> {
  for (let i = 0; i < REHEARSALS; i++) {
    routed(graphviz, warmupGraph());
    await new Promise((done) => setTimeout(done));
  }
}

/** Unzips and compiles graphviz, and stores it where its package reads it. */
async function start(): Promise<Graphviz> {
  (self as unknown as { unzippedGraphviz: Uint8Array }).unzippedGraphviz = new Uint8Array(
    await new Response(unzipped(fromBase64(zipped))).arrayBuffer(),
  );
  return Graphviz.load();
}
