import { expect, test } from "vitest";

import { explained, search, TERMS, termOf } from "../src/terms";

test("each term is found by its name", () => {
  expect(TERMS.length).toBeGreaterThan(200);
  for (const term of TERMS) expect(search(term.name), term.name).toContain(term);
  expect(search("donated")[0]!.name).toBe("donated");
  expect(search("quux")).toEqual([]);
});

test("a text of the workbench is found as it is shown, in its group", () => {
  expect(termOf("badges", "storage 3")?.name).toBe("storage 0");
  expect(termOf("badges", "+12")?.name).toBe("+3, −1");
  expect(termOf("badges", "bypass")?.name).toBe("cache bypass");
  expect(termOf("stages", "dynamo (attempt 0)")?.name).toBe("dynamo");
  expect(termOf("badges", "metadata")?.kind).toBe("badge");
  expect(termOf("stages", "metadata")?.kind).toBe("stage");
  expect(termOf("stages", "a stage of the user's own")).toBeNull();
});

test("a tooltip has what is special about this one, then what the word means, without backticks", () => {
  expect(explained("badges", "kept", "the caller holds `x`")["title"]).toMatch(
    /^the caller holds x\n\nThe backward must/,
  );
  expect(explained("badges", "the user's own")).toEqual({ title: undefined, "data-term": undefined });
});
