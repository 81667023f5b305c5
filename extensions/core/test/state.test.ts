// The shared selection: what stays open when another compilation is opened, and several nodes at once.

import { readFileSync } from "node:fs";

import { beforeEach, describe, expect, test } from "vitest";

import { decodeRecording } from "../src/decode";
import { Recording } from "../src/model";
import { KernelSource } from "../src/source";
import { State } from "../src/state";
import { viewOf } from "../src/views/registry";
import type { CompilationData, RecordingData } from "../src/wire";

const read = (name: string): Uint8Array => new Uint8Array(readFileSync(new URL(name, import.meta.url)));

let data: RecordingData;
let state: State;
beforeEach(async () => {
  data = await decodeRecording(read("fixture.aotviz"));
  state = new State(Recording.whole(data));
});

/** Goes to a stage of the open compilation. */
function goTo(name: string, role?: string): void {
  state.openStage(
    state.compilation.stages.findIndex((stage) => stage.name === name),
    role,
  );
}

describe("another compilation opens where the last one was", () => {
  test("at the stage of the same name, and at the same of its graphs", () => {
    const again = { ...data.compilations[0]!, id: "again" };
    state = new State(Recording.whole({ ...data, compilations: [data.compilations[0]!, again] }));
    goTo("partition", "backward");
    state.openCompilation(1);
    expect(state.stage?.name).toBe("partition");
    expect(state.graph?.role).toBe("backward");
  });

  test("else at the nearest earlier stage that both have", () => {
    goTo("partition");
    state.openCompilation(1); // flatten, metadata, synthetic bases, trace
    expect(state.stage?.name).toBe("trace");
    state.openCompilation(0);
    goTo("joint");
    state.openCompilation(1);
    expect(state.stage?.name).toBe("synthetic bases");
  });

  test("and at its first graph if they have no stage in common", () => {
    goTo("flatten");
    state.openCompilation(1);
    expect(state.stage?.name).toBe("trace");
  });

  test("also if the compilation comes from a kernel only later, and others were passed on the way", async () => {
    const parts = JSON.parse(new TextDecoder().decode(read("fixture.parts.json"))) as Record<string, string>;
    const recording = await Recording.open(
      new KernelSource((question) => {
        const answer = parts[JSON.stringify(question)];
        if (answer === undefined) return Promise.reject(new Error("The kernel does not have this part."));
        return Promise.resolve(new Uint8Array(Buffer.from(answer, "base64")));
      }),
    );
    state = new State(recording);
    await recording.load([{ what: "compilation", compilation: 0 }]);
    await Promise.resolve();
    goTo("partition");
    state.openCompilation(2);
    expect(state.stage).toBeUndefined(); // it has not come yet
    state.openCompilation(1);
    await recording.load([{ what: "compilation", compilation: 1 }]);
    await Promise.resolve();
    expect(state.stage?.name).toBe("trace");
  });
});

describe("the view", () => {
  test("stays open in another compilation", () => {
    state.openView("graph");
    state.openCompilation(1);
    expect(viewOf(state).id).toBe("graph");
  });

  test("is the nearest earlier one that a compilation without it has, and comes back afterwards", () => {
    const error = { stage: "metadata", type: "Refused", message: "no", ran_in_eager: true, place: "" };
    const eager: CompilationData = { ...data.compilations[0]!, id: "eager", error, saved_tensors: [], stages: [] };
    state = new State(Recording.whole({ ...data, compilations: [data.compilations[0]!, eager] }));
    state.openView("saved");
    state.openCompilation(1);
    expect(viewOf(state).id).toBe("aliasing");
    expect(state.bookmark.view).toBe("saved");
    state.openCompilation(0);
    expect(viewOf(state).id).toBe("saved");
  });

  test("of an address that names none is the first", () =>
    expect(viewOf(new State(Recording.whole(data), { view: "none such" })).id).toBe("overview"));
});

describe("several nodes are selected at once", () => {
  const matmuls = (): number[] =>
    state.graph!.nodes.filter(({ target }) => target.includes("mm")).map(({ index }) => index);

  test("the facts are the first one's", () => {
    const nodes = matmuls();
    expect(nodes.length).toBeGreaterThan(1);
    state.openNodes(nodes);
    expect(state.selection).toMatchObject({ node: nodes[0], nodes });
  });

  test("unless one of them is selected already", () => {
    const nodes = matmuls();
    state.openNode(nodes[1]!);
    state.openNodes(nodes);
    expect(state.selection).toMatchObject({ node: nodes[1], nodes });
  });

  test("one node, another graph or another compilation ends it", () => {
    const nodes = matmuls();
    state.openNodes(nodes);
    state.openNode(nodes[1]!);
    expect(state.selection.nodes).toEqual([nodes[1]]);
    state.openNodes(nodes);
    const { valueIndex } = state.node!;
    goTo("decompose");
    expect(state.node?.valueIndex).toBe(valueIndex);
    expect(state.selection.nodes).toEqual([state.selection.node]);
    state.openNodes(nodes);
    state.openCompilation(1);
    expect(state.selection).toMatchObject({ node: -1, nodes: [] });
  });

  test("nodes that the graph does not have are left out", () => {
    state.openNodes([-1, 1e6]);
    expect(state.selection).toMatchObject({ node: -1, nodes: [] });
  });
});
