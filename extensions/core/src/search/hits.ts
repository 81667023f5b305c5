// What the search finds, grouped by where it is: nodes of the open graph and of other stages, inputs and outputs, your
// lines, lines of the wrapper, stages, reasons, painted values, compilations, and words. A hit opens its view at what
// was found.

import { called } from "../called";
import { userFiles } from "../code/sources";
import * as format from "../format";
import type { State } from "../state";
import { unquoted } from "../dom";
import { TERMS } from "../terms";
import { showRow } from "../views/aliasing/asked";
import { EVERYTHING, list } from "../views/compilations/list";
import { nodeTitle, operator } from "../views/graph/labels";
import { shown, valueAt } from "../views/graph/painting";
import { viewsOf } from "../views/registry";
import { showLine } from "../views/wrapper/lines";
import type { Search } from "./search";

export interface Hit {
  readonly label: string;
  readonly details: readonly string[]; // of a node: operator, type and place; of anything else: one text
  open(): void;
}

export interface HitGroup {
  readonly title: string;
  readonly hits: readonly Hit[]; // the first ones
  readonly count: number; // of all
  readonly steps: boolean; // whether these are the nodes of the open graph, through which Enter steps
}

const MOST_NODES = 100;
const MOST = 6; // of every other group
const WITH_NODES = ["code", "graph"]; // views that show a selected node

interface Found {
  readonly title: string;
  readonly hits: readonly Hit[];
  readonly most?: number; // that are listed
}

/** A group in which something has exactly the name that was typed comes first. `explain` opens the help at a word. */
export function hitsOf(state: State, search: Search, explain: (word: string) => void): HitGroup[] {
  const words = search.text.toLowerCase().match(/\S+/g) ?? [];
  if (!words.length) return [];
  const has = (...texts: readonly string[]): boolean => {
    const text = texts.join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const nodes = openGraph(state, search);
  const groups: Found[] = [
    nodes,
    inputs(state, has),
    outputs(state, has),
    yourLines(state, has),
    wrapperLines(state, has),
    stages(state, has),
    otherGraphs(state, has),
    reasons(state, has),
    paintedValues(state, has),
    otherCompilations(state, search.text),
    {
      title: "Words",
      hits: TERMS.filter(({ name }) => has(name)).map(({ name, text }) => hit(name, text, () => explain(name))),
    },
  ];
  const typed = search.text.trim().toLowerCase();
  const isExact = ({ hits }: Found): boolean => hits.some(({ label }) => label.toLowerCase() === typed);
  return [...groups.filter(isExact), ...groups.filter((group) => !isExact(group))].flatMap((group) => {
    const { title, hits, most = MOST } = group;
    return hits.length ? [{ title, hits: hits.slice(0, most), count: hits.length, steps: group === nodes }] : [];
  });
}

/** Selects a node, in the open view if that shows nodes. */
export function openNode(state: State, node: number): void {
  if (!WITH_NODES.includes(state.selection.view)) state.openView("code");
  state.openNode(node);
}

function hit(label: string, text: string, open: () => void): Hit {
  return { label, details: [unquoted(text)], open };
}

type Has = (...texts: readonly string[]) => boolean;

function shows(state: State, view: string): boolean {
  return viewsOf(state).some(({ id }) => id === view);
}

function placeOf(state: State, stage: number, role: string): string {
  const record = state.compilation.stages[stage]!;
  return record.graphs.size > 1 ? `${record.name} · ${role}` : record.name;
}

function openGraph(state: State, search: Search): Found {
  const { graph, recording, compilation, selection } = state;
  const hits = search.nodes.map((index) => {
    const node = graph!.nodes[index]!;
    const where =
      (node.op === "p" ? nodeTitle(node) : node.modules[node.modules.length - 1]?.path) ||
      (node.source ? format.place(node.source.file, node.source.line) : "");
    return {
      label: node.name,
      details: [
        node.op === "p" ? "input" : operator(node.target),
        format.value(recording, node.value, compilation.values),
        where,
      ],
      open: () => openNode(state, index),
    };
  });
  const title = graph ? `Nodes in ${placeOf(state, selection.stage, selection.role)}` : "";
  return { title, hits, most: MOST_NODES };
}

/** Nodes whose name is not in the open graph, each once: in the first graph that has it. */
function otherGraphs(state: State, has: Has): Found {
  const { compilation, recording, graph, selection } = state;
  const seen = new Set(graph?.nodes.map(({ name }) => name));
  const read = new Set<number>();
  const hits: Hit[] = [];
  const missing: { stage: number; role: string }[] = [];
  compilation.stages.forEach((stage, i) => {
    for (const [role, number] of stage.graphs) {
      if (read.has(number) || number === compilation.stages[selection.stage]?.graphs.get(selection.role)) continue;
      read.add(number);
      if (!recording.asksKernel) void recording.load(state.graphNeed(i, role)); // it is here already
      const other = recording.graph(compilation, stage, role);
      if (!other) missing.push({ stage: i, role });
      for (const { name, target, op } of other?.nodes ?? []) {
        if (seen.has(name) || !has(name, target)) continue;
        seen.add(name);
        const open = (): void => {
          if (!WITH_NODES.includes(state.selection.view)) state.openView("code");
          state.openNamed(i, role, name);
        };
        hits.push({
          label: name,
          details: [op === "p" ? "input" : operator(target), "", placeOf(state, i, role)],
          open,
        });
      }
    }
  });
  if (missing.length) {
    const load = (): void => {
      const needs = missing.flatMap(({ stage, role }) => state.graphNeed(stage, role));
      recording.load(needs)?.then(
        () => state.arrived(),
        () => undefined,
      );
    };
    const first = hit("…", `${format.plural(missing.length, "graph")} not loaded yet: load and search`, load);
    return { title: "Nodes in other stages", hits: [first, ...hits] };
  }
  return { title: "Nodes in other stages", hits };
}

function inputs(state: State, has: Has): Found {
  const found = shows(state, "aliasing") ? state.compilation.inputs.filter(({ name }) => has(name)) : [];
  return {
    title: "Inputs",
    hits: found.map(({ name, kind, dtype, shape }) =>
      hit(name, [kind, dtype && format.dtype(dtype) + format.shape(shape)].filter(Boolean).join(" "), () =>
        showRow(state, name),
      ),
    ),
  };
}

function outputs(state: State, has: Has): Found {
  const found = shows(state, "aliasing") ? state.compilation.outputs.filter(({ name }) => has(name)) : [];
  return {
    title: "Outputs",
    hits: found.map(({ name, output_type }) => hit(name, output_type, () => showRow(state, name))),
  };
}

function yourLines(state: State, has: Has): Found {
  const { graph } = state;
  const lines = graph ? userFiles(graph).flatMap(({ file, lines }) => lines.map((line) => ({ file, line }))) : [];
  return {
    title: "Your lines",
    hits: lines
      .filter(({ file, line }) => has(format.place(file, line.line), line.code))
      .map(({ file, line }) =>
        hit(format.place(file, line.line), line.code, () => {
          state.openView("code");
          state.openNodes(line.nodes);
        }),
      ),
  };
}

function wrapperLines(state: State, has: Has): Found {
  const source = shows(state, "wrapper") ? (state.compilation.wrapper?.source ?? "") : "";
  const lines = source.split("\n").flatMap((text, line) => (text.trim() && has(text) ? [{ text, line }] : []));
  return {
    title: "Lines of the wrapper",
    hits: lines.map(({ text, line }) => hit(`line ${line + 1}`, text.trim(), () => showLine(state, line))),
  };
}

function stages(state: State, has: Has): Found {
  const found = state.compilation.stages.flatMap((stage, i) => (has(stage.name, stage.summary) ? [{ stage, i }] : []));
  return {
    title: "Stages",
    hits: found.map(({ stage, i }) => hit(stage.name, stage.summary, () => state.openStage(i))),
  };
}

function reasons(state: State, has: Has): Found {
  const hits = state.compilation.stages.flatMap((stage, i) =>
    stage.evidence
      .filter(({ subject, reason }) => has(subject, reason))
      .map(({ subject, reason }) =>
        hit(`${stage.name}: ${subject}`, reason, () => {
          state.openView("evidence");
          state.openStage(i);
        }),
      ),
  );
  return { title: "Reasons", hits };
}

/** Values that the user painted nodes with, such as a category; a hit goes to the node in a graph that has the value. */
function paintedValues(state: State, has: Has): Found {
  const hits = state.paintings.flatMap((painting) =>
    painting.names.flatMap((name, i) => {
      const text = shown(valueAt(painting, i)!, painting.unit);
      const open = (): void => {
        const stage = painting.stages[i] || painting.stage;
        const found = state.compilation.stages.findIndex((one) => one.name === stage);
        state.openPainting(painting.label);
        state.openView("graph");
        state.openNamed(found, painting.graphs[i] || painting.graph, name);
      };
      return has(painting.label, text) ? [hit(name, `${painting.label}: ${text}`, open)] : [];
    }),
  );
  return { title: "Painted values", hits };
}

function otherCompilations(state: State, text: string): Found {
  const rows = list(state.recording.index.compilations, { ...EVERYTHING, text });
  return {
    title: "Compilations",
    hits: rows
      .filter(({ position }) => position !== state.selection.compilation)
      .map(({ head, position }) =>
        hit(called(head), [head.kind, state.recording.whyInShort(position)].filter(Boolean).join(" · "), () =>
          state.openCompilation(position),
        ),
      ),
  };
}
