// An example lane that warms up graphviz before the first request. It has what makes real lanes slow: nested modules, a
// chain through them, and edges past many rows, which are routed around the boxes between.

import type { LaneInput } from "./placed";

const BOXES = 40;
const CHAIN = BOXES - 1; // edges
const FAR = 3; // every FAR-th box reads the first box

export function warmupGraph(): LaneInput {
  const far = Array.from({ length: Math.floor(CHAIN / FAR) }, (_, i) => FAR * (i + 1));
  const chain = Array.from({ length: CHAIN }, (_, i) => i);
  return {
    upward: false,
    width: new Float32Array(BOXES).fill(90),
    height: new Float32Array(BOXES).fill(40),
    cluster: Int32Array.from({ length: BOXES }, (_, i) =>
      i < 4 || i >= BOXES - 4 ? -1 : i < 10 || i >= BOXES - 10 ? 0 : 1,
    ),
    parent: Int32Array.of(-1, 0),
    titles: Float32Array.of(60, 60),
    from: Int32Array.from([...chain, ...far.map(() => 0)]),
    to: Int32Array.from([...chain.map((i) => i + 1), ...far]),
  };
}
