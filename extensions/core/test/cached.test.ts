import { describe, expect, test } from "vitest";

import { answered, answeredInFull, colourOfAnswer, madeAt } from "../src/cached";
import type { CacheAnswer } from "../src/wire";

const answer = (more: Partial<CacheAnswer>): CacheAnswer => ({
  outcome: "miss",
  words: "its torch differs",
  place: "",
  key: "",
  nearest: "",
  differs: [],
  saved_ns: 0,
  saved_at_unix_s: 0,
  ...more,
});

describe("the cache's answer", () => {
  test("is short in a list, and says what a hit saved", () => {
    expect(answered(answer({}))).toBe("miss");
    expect(answered(answer({ outcome: "hit", saved_ns: 2_500_000_000 }))).toBe("hit · saved 2.5 s");
  });
  test("is told in full by a tooltip", () => {
    const differs = [{ name: "torch", before: "2.12", after: "" }];
    expect(answeredInFull(answer({ differs, place: "a.py:1" }))).toBe(
      "its torch differs\ntorch: 2.12 before, now nothing\na.py:1",
    );
  });
  test("is green for a hit, a warning for what should have been one", () => {
    expect(
      ["hit", "guard miss", "bypass", "miss", "new"].map((outcome) => colourOfAnswer(answer({ outcome }))),
    ).toEqual(["added", "warn", "warn", "", ""]);
  });
  test("has a date only if one is known", () => {
    expect(madeAt(1_793_000_000)).toBe("2026-10-26 07:33 UTC");
    expect([madeAt(0), madeAt(NaN), madeAt(1e300)]).toEqual(["", "", ""]);
  });
});
