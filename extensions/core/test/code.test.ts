import { readFileSync } from "node:fs";

import { beforeAll, describe, expect, test } from "vitest";

import { counts, diffLines, spans } from "../src/code/diff";
import { listing } from "../src/code/python";
import { decodeRecording } from "../src/decode";
import { parseModules, parseSource } from "../src/graph";
import { Recording } from "../src/model";
import { State } from "../src/state";

let state: State;
beforeAll(async () => {
  const file = new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url)));
  state = new State(Recording.whole(await decodeRecording(file)));
});

const text = (): string => listing(state.recording, state.compilation, state.graph!).lines.join("\n");

describe("the code of a graph", () => {
  test("reads like Python, with the user's lines as comments", () => {
    state.openStage(7);
    expect(text()).toContain(
      [
        "    # model.py:13 in forward: h = self.act(h)",
        "    gelu: f32[8, 64] = aten.gelu.default(addmm, approximate='none')",
        "",
        "    # model.py:14 in forward: return x + h",
        "    add: f32[8, 64] = aten.add.Tensor(primals_7, gelu, alpha=1.0)",
      ].join("\n"),
    );
    expect(text()).toContain("aten.slice.Tensor(add_2, 1, 0, end)");
    expect(text()).toContain("# ---- backward ----");
  });
  test("shows symbols, operators, dtypes and None as they are written", () => {
    state.openCompilation(1);
    expect(text()).toContain("sym_size_int: s0 = aten.sym_size.int(arg0_1, 0)");
    expect(text()).toContain("scale = sym_size_int * 4");
    expect(text()).toContain("aten.full.default([scale], 1.0, dtype=torch.float32, pin_memory=False)");
    expect(text()).toContain("return [view, full, None]");
    state.openCompilation(0);
  });
  test("every node has its line", () => {
    state.openStage(9, "backward");
    const { lines, nodes, lineOf } = listing(state.recording, state.compilation, state.graph!);
    expect(lineOf.size).toBe(state.graph!.nodes.length);
    for (const [node, line] of lineOf) expect(nodes[line]).toBe(node);
    expect(lines[lineOf.get(0)!]).toContain(state.graph!.nodes[0]!.name);
  });
  test("a selected node goes along to the next stage, where the value has another name", () => {
    state.openStage(7);
    state.openNode(state.graph!.nodes.findIndex(({ name }) => name === "addmm_1"));
    state.openStage(8);
    expect(state.node!.name).toBe("add_bias_1");
  });
});

test("the innermost frame of a stack is found in both notations", () => {
  expect(parseSource('  File "a/b.py", line 3, in f\n    g(x)\n  File "c.py", line 9, in g\n    return y')).toEqual({
    file: "c.py",
    line: 9,
    scope: "g",
    code: "return y",
  });
  expect(parseSource("model.py:12 in forward, return x")).toEqual({
    file: "model.py",
    line: 12,
    scope: "forward",
    code: "return x",
  });
  expect(parseSource("")).toBeNull();
});

test("module lines may hold any character but a newline", () => {
  expect(parseModules("a.b|C\na.b.x|y|D")).toEqual([
    { path: "a.b", type: "C" },
    { path: "a.b.x|y", type: "D" },
  ]);
});

describe("diff", () => {
  const lines = (words: string): string[] => words.split(" ");
  /** b, rebuilt from a and the blocks. */
  function rebuilt(a: string[], b: string[]): string[] {
    const out: string[] = [];
    let at = 0;
    for (const block of diffLines(a, b)) {
      out.push(...a.slice(at, block.fromA), ...b.slice(block.fromB, block.toB));
      at = block.toA;
    }
    return [...out, ...a.slice(at)];
  }
  test("finds the one changed line", () => {
    expect(diffLines(lines("a b c d"), lines("a b x d"))).toEqual([{ fromA: 2, toA: 3, fromB: 2, toB: 3 }]);
    expect(diffLines(lines("a b"), lines("a b"))).toEqual([]);
    expect(counts(diffLines(lines("a b"), lines("b c d")))).toEqual({ added: 2, removed: 1 });
  });
  test("rebuilds the other side, for random texts with many repeated lines", () => {
    let seed = 7;
    const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below;
    for (let turn = 0; turn < 400; turn++) {
      const some = (): string[] => Array.from({ length: random(40) }, () => String(random(2 + random(20))));
      const [a, b] = [some(), some()];
      expect(rebuilt(a, b)).toEqual(b);
    }
  });
  test("character spans leave the same text on both sides between them", () => {
    let seed = 11;
    const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below;
    for (let turn = 0; turn < 300; turn++) {
      const some = (): string[] => Array.from({ length: 1 + random(9) }, () => "abc".repeat(random(3)) + random(5));
      const [a, b] = [some(), some()];
      const [textA, textB] = [a.join("\n"), b.join("\n")];
      let [atA, atB] = [0, 0];
      for (const span of spans(a, b, diffLines(a, b))) {
        expect(textA.slice(atA, span.fromA)).toBe(textB.slice(atB, span.fromB));
        [atA, atB] = [span.toA, span.toB];
      }
      expect(textA.slice(atA)).toBe(textB.slice(atB));
    }
  });
  test("20,000 lines take well under a second", () => {
    const a = Array.from({ length: 20000 }, (_, i) => (i % 3 ? `line ${i}` : ""));
    const b = a.flatMap((line, i) => (i % 50 === 0 ? [`new ${i}`, line] : i % 77 === 0 ? [] : [line]));
    const start = performance.now();
    expect(diffLines(a, b).length).toBeGreaterThan(100);
    expect(performance.now() - start).toBeLessThan(1000);
  });
  test("texts without a common line are one block, at once", () => {
    const a = Array.from({ length: 5000 }, (_, i) => `a${i % 7}`);
    const b = Array.from({ length: 5000 }, (_, i) => `b${i % 7}`);
    expect(diffLines(a, b)).toEqual([{ fromA: 0, toA: 5000, fromB: 0, toB: 5000 }]);
  });
});
