// The worker's whole program: lanes in, layouts out. It is a bundle of its own, as graphviz is larger than everything
// else together and must not block the page.

import { type Format, Graphviz } from "@hpcc-js/wasm-graphviz";
import zipped from "zipped:graphviz";

import { fromBase64, unzipped } from "../bytes";
import { fromDot, toDot } from "../layout/dot";
import { layered } from "../layout/layered";
import type { Answer, Question } from "../layout/layouter";
import type { LaneInput, LaneLayout } from "../layout/placed";
import { rehearsal } from "../layout/rehearsal";

// json0: positions without drawing operations; graphviz knows it, the type of the binding does not list it.
const JSON0 = "json0" as Format;
const REHEARSALS = 10;
const ready = start();
ready.then(rehearse, () => undefined); // who asks for a layout is told of an error

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
 * Lays out what nobody asked for. The browser compiles a function of WebAssembly when it is first called, and well only
 * when it was called often: the first opened module took seven times as long as the third. Questions come in between.
 */
async function rehearse(graphviz: Graphviz): Promise<void> {
  for (let i = 0; i < REHEARSALS; i++) {
    routed(graphviz, rehearsal());
    await new Promise((done) => setTimeout(done));
  }
}

/** Unzips graphviz and compiles it; its package takes it from where this puts it. */
async function start(): Promise<Graphviz> {
  (self as unknown as { unzippedGraphviz: Uint8Array }).unzippedGraphviz = new Uint8Array(
    await new Response(unzipped(fromBase64(zipped))).arrayBuffer(),
  );
  return Graphviz.load();
}
