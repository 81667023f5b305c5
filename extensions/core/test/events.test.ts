import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { Recording } from "../src/model";
import { State } from "../src/state";
import { matches, noticed, type Row, rowsOf } from "../src/views/events/rows";

const row = (what: string, subject = "", fact = ""): Row => ({
  ...{ number: 1, what, tensor: "x", of: "", operator: "add_", node: "", source: "", mode: "" },
  made: fact ? [{ subject, fact, text: "" }] : [],
});

test("rows have the texts of the log, in its order, the arguments first", async () => {
  const file = new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url)));
  const data = await decodeRecording(file);
  const { id } = data.compilations.find(({ run }) => run !== null)!;
  const state = new State(Recording.whole(data), { compilation: id });
  const rows = rowsOf(state);
  expect(rows.map((one) => one.number)).toEqual(rows.map((_, i) => i + 1));
  expect(rows[0]!.what).toBe("argument");
  expect(rows.every(({ what, tensor }) => what === "random" || what === "effect" || tensor !== "")).toBe(true);
});

test("the sentence names each changed input once, and only results that share memory", () => {
  const rows = [row("write", "x", "data"), row("metadata", "x", "metadata"), row("view", "out[0]", "alias_of_input")];
  const results = [row("result", "out[0]", "alias_of_input"), row("result", "out[1]", "non_alias")];
  expect(noticed([...rows, ...results])).toEqual({ changed: ["x"], views: ["out[0]"] });
});

test("a search finds the words of a fact", () => {
  expect(matches(row("write", "weight", "data"), ["weight", "write"])).toBe(true);
  expect(matches(row("write", "weight", "data"), ["weight", "view"])).toBe(false);
});
