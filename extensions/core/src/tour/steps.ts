// The steps of the tour through a recording. Each chapter looks at what was recorded and returns a step, or null if the
// recording has nothing of its kind, so a step never names what is not there. The tour has the eight chapters that say
// most about the open compilation. The chapters are in the order in which the tour tells them. They come with the editor,
// so what the workbench keeps to itself is handed in as `Doors`.

import { userFiles, type UserLine } from "../code/sources";
import * as format from "../format";
import type { Need } from "../model";
import type { State } from "../state";
import type { StageRecord, StorageRecord, WrapperNote } from "../wire";

export interface Step {
  readonly title: string; // both with `code` in backticks
  readonly text: string;
  /** Opens the view. */
  show(state: State): void;
  /** The element that the step points at, once it is drawn. */
  find(body: HTMLElement): Element | null;
}

/** What the steps open. */
export interface Doors {
  viewsOf(state: State): readonly { readonly id: string }[];
  /** Opens the wrapper view at the lines of some notes. */
  showLines(state: State, notes: readonly number[]): void;
}

interface Chapter {
  readonly rank: number; // each once; the eight with the lowest are told
  step(state: State, shows: (view: string) => boolean, doors: Doors): Step | null;
}

const MOST = 8;
const LIBRARY = /[\\/](?:site|dist)-packages[\\/]|[\\/]lib[\\/]python3\.\d+[\\/]|^(?:torch|nn|utils|_\w+|functional)\//;

/** What must be loaded before `stepsOf` can tell all. */
export function needsOf(state: State): Need[] {
  const told = firstGraph(state);
  return told ? state.graphNeed(told.stage, told.role) : [];
}

export function stepsOf(state: State, doors: Doors): Step[] {
  const views = doors.viewsOf(state);
  const shows = (view: string): boolean => views.some(({ id }) => id === view);
  const told = CHAPTERS.flatMap(({ rank, step }) => {
    const made = step(state, shows, doors);
    return made ? [{ rank, made }] : [];
  });
  const ranks = told.map(({ rank }) => rank).sort((a, b) => a - b);
  const last = ranks[MOST - 1] ?? Infinity;
  return told.filter(({ rank }) => rank <= last).map(({ made }) => made);
}

const CHAPTERS: readonly Chapter[] = [
  {
    rank: 1,
    step({ compilation: { name, stages } }) {
      if (!stages.length) return null;
      const changed = stages.filter((stage) => stage.changed).length;
      return {
        title: "The stages",
        text: `${code(name)} went through ${format.plural(stages.length, "stage")}, from top to bottom. ${changed} of them changed something, and each says what in one sentence. A click opens one.`,
        show: (state) => openStage(state, stages[0]!.name, "code"),
        find: (body) => body.querySelector(".rail .stages"),
      };
    },
  },
  {
    rank: 3,
    step({ compilation: { error } }) {
      if (!error) return null;
      return {
        title: error.ran_in_eager ? "This ran in eager" : "This failed",
        text: `The stage ${code(error.stage)} ended the compilation. Its reason is here${error.place ? ", with your line" : ""}.`,
        show: (state) => openStage(state, error.stage),
        find: (body) => body.querySelector(".failure"),
      };
    },
  },
  {
    rank: 11,
    step(state, shows) {
      const told = firstGraph(state);
      const graph = told && state.recording.graph(state.compilation, state.compilation.stages[told.stage]!, told.role);
      if (!told || !graph || !shows("code")) return null;
      const own = userFiles(graph).filter(({ file }) => !LIBRARY.test(file));
      const found = mostNodes(own.flatMap(({ file, lines }) => lines.map((line) => ({ file, line }))));
      if (!found) return null;
      const { file, line } = found;
      return {
        title: "Your line, and its nodes",
        text: `${code(`${format.place(file, line.line)} ${line.code}`)} became ${format.plural(line.nodes.length, "node")} of this graph. A click on a line of yours marks its nodes, and a click on a node marks your line.`,
        show(now) {
          now.openView("code");
          now.openStage(told.stage, told.role);
          now.openNodes(line.nodes);
        },
        find: (body) =>
          body.querySelector('.panel .source[aria-pressed="true"]') ?? body.querySelector(".panel .aot-marked"),
      };
    },
  },
  {
    rank: 4,
    step(state, shows) {
      const { storages, inputs } = state.compilation;
      const input = inputs.find(({ mutates_data, mutates_metadata }) => mutates_data || mutates_metadata);
      if (!input || !shows("aliasing")) return null;
      const written = writeTo(storages, input.name);
      const [operator, source] = written ? [written.operator, place(written.source)] : ["", ""];
      const how = operator ? `with ${code(operator)}` : "in place";
      const change = input.mutates_data ? "writes" : "changes the metadata of";
      return {
        title: `Your function ${change} ${code(input.name)}`,
        text: `It does so ${how}${source ? `, at ${code(source)}` : ""}. ${
          written
            ? "Here are the tensors in this memory and the writes to it, in their order."
            : "Its row says how the compiled function treats that."
        }`,
        show: (now) => openStage(now, "metadata", "aliasing"),
        find: (body) =>
          (written &&
            body.querySelector(
              `.panel .card[data-storage="${written.storage}"] .writes > li:nth-child(${written.number + 1})`,
            )) ||
          rowOf(body, input.name),
      };
    },
  },
  {
    rank: 6,
    step(state, shows) {
      const { inputs } = state.compilation;
      const input = inputs.find(({ synthetic_base }) => synthetic_base !== "");
      const alike = inputs.filter(({ storage }) => storage >= 0 && storage === (input ?? sharer(state))?.storage);
      if (alike.length < 2 || !shows("aliasing")) return null;
      const names = alike.map(({ name }) => name);
      return {
        title: `${listed(names)} share memory`,
        text: `${
          input
            ? `They overlap, and one of them is written. So the graph gets one tensor, ${code(input.synthetic_base)}, and makes them as views of it. `
            : ""
        }The strips show which part of the memory each tensor covers.`,
        show: (now) => openStage(now, input ? "synthetic bases" : "metadata", "aliasing"),
        find: (body) => cardOf(body, state, names[0]!) ?? rowOf(body, names[0]!),
      };
    },
  },
  {
    rank: 5,
    step(state, shows, { showLines }) {
      const { wrapper, inputs } = state.compilation;
      if (!wrapper || !shows("wrapper")) return null;
      const lines = wrapper.source.split("\n");
      const copies = ({ first, last }: WrapperNote): boolean =>
        lines.slice(first - 1, last).some((line) => line.includes(".copy_("));
      const [found] = inputs
        .filter(({ mutates_data }) => mutates_data)
        .flatMap(({ name, synthetic_base: base }) => {
          const number = wrapper.notes.findIndex(
            (note) => note.subject === (base || name) && copies(note), // a base is written in the place of its views
          );
          return number < 0 ? [] : [{ name, base, number }];
        });
      if (!found) return null;
      const { name, base, number } = found;
      return {
        title: `Here ${code(name)} gets its new value`,
        text: `The graph does not write ${code(base || name)}: it returns the new value. After the graph ran, this line of the generated wrapper copies that value into ${base ? "the memory of your tensor" : "your tensor"}. Every line of the wrapper says why it is there.`,
        show(now) {
          openStage(now, "link");
          showLines(now, [number]);
        },
        find: (body) =>
          body.querySelector(".panel .aot-marked") ?? body.querySelector('.panel .note[aria-pressed="true"]'),
      };
    },
  },
  {
    rank: 8,
    step(state) {
      const stage = stageNamed(state, "partition");
      const counts = stage && new Map([...stage.graphs].map(([role, graph]) => [role, nodeCount(state, graph)]));
      const [forward, backward] = [counts?.get("forward"), counts?.get("backward")];
      if (forward === undefined || backward === undefined) return null;
      return {
        title: "Forward and backward are cut apart",
        text: `The stage ${code("partition")} cut one joint graph into a forward of ${format.plural(forward, "node")} and a backward of ${format.plural(backward, "node")}. Choose the graph here, or press r.`,
        show: (now) => openStage(now, "partition", "graph"),
        find: (body) => body.querySelector(".stage-head .roles"),
      };
    },
  },
  {
    rank: 9,
    step(state, shows) {
      const { saved_tensors: saved } = state.compilation;
      const cost = ({ held_bytes, nbytes }: (typeof saved)[number]): number => held_bytes ?? nbytes ?? Infinity;
      const first = [...saved].sort((a, b) => cost(b) - cost(a))[0];
      if (!first || !shows("saved")) return null;
      return {
        title: `${code(first.name)} is saved for the backward`,
        text: `It is one of ${format.plural(saved.length, "value")} that the forward keeps for the backward. ${first.why ? `Why: ${first.why}.` : "The columns say who reads it and how large it is."}`,
        show: (now) => openStage(now, "partition", "saved"),
        find: (body) => rowOf(body, first.name),
      };
    },
  },
  {
    rank: 16,
    step(state, shows) {
      const [value] = state.compilation.recomputed;
      if (!value || !shows("saved") || !state.compilation.saved_tensors.length) return null;
      return {
        title: `${code(value.name)} is computed again`,
        text: "The backward needs this value, and computes it again instead of keeping it. That costs time and spares memory.",
        show: (now) => openStage(now, "partition", "saved"),
        find: (body) => rowOf(body, value.name),
      };
    },
  },
  {
    rank: 13,
    step(state, shows) {
      const output = state.compilation.outputs.find(({ base }) => base !== "");
      if (!output || !shows("aliasing")) return null;
      const chain = output.view_chain.map(format.viewStep).join("");
      return {
        title: `${code(output.name)} is a view`,
        text: `The wrapper makes it from ${code(output.base)}${chain ? ` by ${code(chain)}` : ""}, so that it shares memory as in eager.`,
        show: (now) => openStage(now, "metadata", "aliasing"),
        find: (body) => rowOf(body, output.name, "Outputs"),
      };
    },
  },
  {
    rank: 7,
    step(state, shows) {
      const { visits } = state.compilation;
      if (!visits.length || !shows("backward")) return null;
      return {
        title: "The backward, node by node",
        text: `Autograd ran ${format.plural(visits.length, "node")} of its graph. Each row says what the node became in the captured graph.`,
        show: (now) => now.openView("backward"),
        find: (body) => body.querySelector(".panel .backward-table tbody tr"),
      };
    },
  },
  {
    rank: 14,
    step(state, shows) {
      const { stages } = state.compilation;
      const drawn = (stage: StageRecord): boolean => stage.graphs.size > 0;
      const at = stages.findIndex(
        (stage, i) => i > 0 && stage.changed && drawn(stage) && stages.slice(0, i).some(drawn),
      );
      if (at < 0 || !shows("diff")) return null;
      return {
        title: `What ${code(stages[at]!.name)} changed`,
        text: "The diff compares the graph with the one before this stage, or with any other that you choose here.",
        show(now) {
          now.compareWith(null);
          openStage(now, stages[at]!.name, "diff");
        },
        find: (body) => body.querySelector(".panel .bar"),
      };
    },
  },
  {
    rank: 12,
    step(state, shows) {
      const stages = busy(state);
      const drawn =
        stages.findLast(({ graphs }) => graphs.has("joint")) ?? stages.findLast(({ graphs }) => graphs.size);
      if (!drawn || !shows("graph")) return null;
      return {
        title: "The graph as a drawing",
        text: "A click on a module opens it, and a click on a node selects it in all views. The outline has the same nodes as a list.",
        show: (now) => openStage(now, drawn.name, "graph"),
        find: (body) => body.querySelector(".panel .stage-area"),
      };
    },
  },
  {
    rank: 18,
    step(state, shows) {
      const stage = busy(state).findLast(({ graphs }) => graphs.size > 0);
      if (!stage || !shows("code")) return null;
      const [role, graph] = [...stage.graphs][0]!;
      if (nodeCount(state, graph) < 2) return null;
      return {
        title: "Everything about one node",
        text: "A selected node shows its value, its module, your source line, the nodes that it reads, and where its value is in other stages.",
        show(now) {
          now.openView("code");
          now.openStage(now.compilation.stages.indexOf(stage), role);
          if (!now.node) now.openNode(0);
        },
        find: (body) => body.querySelector(".facts:not([hidden])"),
      };
    },
  },
  {
    rank: 10,
    step(state, shows) {
      const stage = reasoned(state);
      const said = stage?.evidence[0];
      if (!stage || !said || !shows("evidence")) return null;
      return {
        title: "Every decision has a reason",
        text: `${code(stage.name)} left ${format.plural(stage.evidence.length, "reason")}. The first is about ${code(said.subject)}: ${said.reason}.`,
        show: (now) => openStage(now, stage.name, "evidence"),
        find: (body) => body.querySelector(".panel .table tbody tr"),
      };
    },
  },
  {
    rank: 15,
    step(state, shows) {
      const { id } = state.compilation;
      const why = state.recording.whyInShort(state.selection.compilation);
      if (!why || !shows("compilations")) return null;
      return {
        title: "Why it was compiled again",
        text: `${why}. The list has all compilations of this recording and compares any two.`,
        show: (now) => now.openView("compilations"),
        find: (body) =>
          [...body.querySelectorAll(".panel .compilations tbody tr")].find(
            (row) => row.querySelector("th")?.textContent === id,
          ) ?? null,
      };
    },
  },
  {
    rank: 19,
    step(state, shows) {
      if (!shows("timeline") || !state.recording.rowCount("timeline")) return null;
      return {
        title: "When everything happened",
        text: "Each bar is a stage, or an event of torch's log. A click on a bar opens its stage.",
        show: (now) => now.openView("timeline"),
        find: (body) => body.querySelector(".panel .timeline-view"),
      };
    },
  },
  {
    rank: 17,
    step: (state, _, { viewsOf }) => ({
      title: "The views",
      text: `All ${viewsOf(state).length} views show the same selection: the stage, its graph, and the node. Press 1 … 9 to open one.`,
      show: () => undefined,
      find: (body) => body.querySelector(".tabs"),
    }),
  },
  {
    rank: 2,
    step: () => ({
      title: "What is this?",
      text: "“?” explains the words on the screen, lists the keys, and starts this tour again.",
      show: () => undefined,
      find: (body) => body.querySelector(".help-button"),
    }),
  },
];

function code(text: string): string {
  return `\`${text.replaceAll("`", "'")}\``;
}

/** `a` and `b`; with more than three, `a`, `b` and 5 others. */
function listed(names: readonly string[]): string {
  const shown = names.length > 3 ? names.slice(0, 2) : names;
  const rest = names.length - shown.length;
  const words = [...shown.map(code), ...(rest ? [`${rest} others`] : [])];
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** `train.py:12 x.add_(1)`, from a source with a whole path; "" for a line of a library. */
function place(source: string): string {
  if (LIBRARY.test(source)) return "";
  const parts = /^(\S+:\d+)[:,]?\s*([^]*)$/.exec(source);
  return parts ? `${parts[1]!.split(/[\\/]/).pop()} ${parts[2]}`.trim() : source;
}

function stageNamed({ compilation }: State, name: string): StageRecord | undefined {
  return compilation.stages.find((stage) => stage.name === name);
}

/** Opens a view, without a selected node, and a stage if the compilation has it. */
function openStage(state: State, name: string, view = state.selection.view): void {
  state.openNode(-1);
  state.openView(view);
  state.openStage(state.compilation.stages.findIndex((stage) => stage.name === name));
}

/** The stages that changed something: the tour stops at no other. */
function busy({ compilation: { stages } }: State): StageRecord[] {
  return stages.filter(({ changed }) => changed);
}

/** The first graph: the one that is nearest to the user's lines. */
function firstGraph({ compilation: { stages } }: State): { stage: number; role: string } | null {
  const stage = stages.findIndex(({ graphs }) => graphs.size > 0);
  return stage < 0 ? null : { stage, role: [...stages[stage]!.graphs.keys()][0]! };
}

function nodeCount({ recording, compilation }: State, graph: number): number {
  return recording.graphValues(compilation, graph).length;
}

function mostNodes<Line extends { readonly line: UserLine }>(lines: readonly Line[]): Line | undefined {
  return lines.reduce<Line | undefined>(
    (most, one) => (most && most.line.nodes.length >= one.line.nodes.length ? most : one),
    undefined,
  );
}

/** The stage whose reasons are most about this program: one that decided about an input, an output or a saved value. */
function reasoned(state: State): StageRecord | undefined {
  const stages = busy(state);
  const telling = ["donated buffers", "dedupe", "metadata", "synthetic bases", "partition"];
  return [...telling.map((name) => stages.find((stage) => stage.name === name)), ...stages].find(
    (stage) => (stage?.evidence.length ?? 0) > 0,
  );
}

function sharer({ compilation: { inputs } }: State): { storage: number } | undefined {
  return inputs.find(({ storage }, i) => storage >= 0 && inputs.findIndex((other) => other.storage === storage) < i);
}

function writeTo(
  storages: readonly StorageRecord[],
  name: string,
): { operator: string; source: string; storage: number; number: number } | null {
  for (const [storage, { tensors, writes }] of storages.entries()) {
    const number = writes.findIndex(({ tensor }) => tensors[tensor]?.names.includes(name));
    const write = writes[number];
    if (write) return { operator: write.operator, source: write.source, storage, number };
  }
  return null;
}

function cardOf(body: HTMLElement, { compilation: { storages } }: State, name: string): Element | null {
  const number = storages.findIndex(({ tensors }) => tensors.some(({ names }) => names.includes(name)));
  return body.querySelector(`.panel .card[data-storage="${number}"] .windows`);
}

/** The row of a table that begins with a name. `caption`: how the caption of the table begins. */
function rowOf(body: HTMLElement, name: string, caption = ""): Element | null {
  for (const table of body.querySelectorAll(".panel table")) {
    if (!table.querySelector("caption")?.textContent?.startsWith(caption)) continue;
    for (const row of table.querySelectorAll("tbody tr")) {
      const head = row.querySelector("th");
      if ((head?.firstElementChild ?? head)?.textContent === name) return row;
    }
  }
  return null;
}
