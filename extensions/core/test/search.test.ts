// The one search: what it finds, where it says that it is, and where a hit leads.

import { readFileSync } from "node:fs";

import { beforeEach, describe, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { Recording } from "../src/model";
import { type HitGroup, hitsOf } from "../src/search/hits";
import { Search } from "../src/search/search";
import { State } from "../src/state";

let state: State;
let search: Search;
let explained: string[];
beforeEach(async () => {
  const data = await decodeRecording(new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url))));
  state = new State(Recording.whole(data));
  search = new Search(state);
  explained = [];
});

function find(text: string): HitGroup[] {
  search.set(text);
  return hitsOf(state, search, (word) => explained.push(word));
}
function group(text: string, title: string): HitGroup {
  return find(text).find((one) => one.title === title)!;
}

describe("a search", () => {
  test("groups what it finds by where it is", () => {
    const titles = find("gelu").map(({ title }) => title);
    expect(titles).toEqual(["Nodes in trace", "Reasons"]);
    expect(group("mm_1", "Nodes in other stages").hits[0]).toMatchObject({
      label: "mm_1",
      details: ["mm", "", "decompose"],
    });
    expect(group("self.act", "Your lines").hits.map(({ label }) => label)).toEqual(["model.py:13"]);
    expect(group("ctx.saved_tensors", "Lines of the wrapper").hits[0]!.label).toBe("line 12");
  });

  test("puts the group first in which something has the typed name", () => {
    expect(find("partition")[0]!.title).toBe("Stages");
    expect(find("donated")[0]!.title).toBe("Words");
    expect(find("x")[0]!.title).toBe("Inputs");
  });

  test("finds nothing for nothing, and needs all words", () => {
    expect(find(" ")).toEqual([]);
    expect(find("partition nowhere")).toEqual([]);
  });

  test("lists each node of other stages once, at the first stage that has it", () => {
    const { hits } = group("add_bias", "Nodes in other stages");
    const names = hits.map(({ label }) => label);
    expect(new Set(names).size).toBe(names.length);
    expect(hits.every(({ details }) => details[2] === "decompose")).toBe(true);
  });

  test("names nodes as the code does", () => {
    const { hits } = group("op:gelu", "Nodes in trace");
    expect(hits.map(({ label }) => label)).toContain("gelu_1");
  });
});

describe("a hit", () => {
  test("of another stage goes there and selects the node", () => {
    group("mm_1", "Nodes in other stages").hits[0]!.open();
    expect([state.stage?.name, state.node?.name]).toEqual(["decompose", "mm_1"]);
  });

  test("opens the view of what was found", () => {
    group("ctx.saved_tensors", "Lines of the wrapper").hits[0]!.open();
    expect(state.selection.view).toBe("wrapper");
    group("x", "Inputs").hits[0]!.open();
    expect(state.selection.view).toBe("aliasing");
    group("self.act", "Your lines").hits[0]!.open();
    expect([state.selection.view, state.selection.nodes.length > 1]).toEqual(["code", true]);
    group("gelu's", "Reasons").hits[0]!.open();
    expect([state.selection.view, state.stage?.name]).toEqual(["evidence", "partition"]);
    group("donated", "Words").hits[0]!.open();
    expect(explained).toHaveLength(1);
  });
});

describe("a table", () => {
  test("is narrowed by what was typed while it was open, and by nothing else", () => {
    state.openView("saved");
    find("mm");
    expect(search.textIn("saved")).toBe("mm");
    state.openView("compilations");
    expect(search.textIn("compilations")).toBe("");
  });
});
