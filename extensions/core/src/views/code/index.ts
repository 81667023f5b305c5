// The stage's graph as Python-like code. The user's lines that it comes from are on one side. If Inductor compiled the
// graph, the kernels are on the other side. A click in any of the three marks the corresponding lines in the other two.
// A stage without a graph may still have code, such as the one of torch's Inductor; then the view shows that code.

import { h, notice, replace } from "../../dom";
import type { Editor, Reader } from "../../editor/types";
import type { Graph } from "../../graph";
import type { StageRecord } from "../../wire";
import { noGraph, withoutGraph } from "../absent";
import { listingOf } from "../listings";
import type { Context, Mounted, View } from "../view";
import { KernelPane, kernelText } from "./kernels";
import { SourcePane } from "./sources";

const WIDE = 900; // pixels: from this width the user's lines are shown by default

export const code: View = {
  id: "code",
  title: "Code",
  isEmpty: withoutGraph,
  needs(state) {
    const { compilation, stage } = state.selection;
    const graph = state.graphNeed();
    return graph.length || !state.stage?.code.size ? graph : [{ what: "code", compilation, stage }];
  },
  mount(parent: HTMLElement, context: Context): Mounted {
    const { state, host, root } = context;
    let editor: Editor | null = null;
    let reader: Reader | null = null;
    let sources: SourcePane | null = null;
    let kernels: KernelPane | null = null;
    let shown: unknown = null;
    let marked: readonly number[] | null = null;
    let own = false; // the reader selected in the code itself: do not scroll
    let withSources: boolean | null = null;
    let withKernels = false;
    let gone = false;

    const close = (): void => {
      reader?.destroy();
      kernels?.destroy();
      reader = kernels = sources = null;
      marked = null;
    };
    const choose = (nodes: readonly number[]): void => {
      if (nodes.length) state.openNodes(nodes);
    };
    const toggle = (text: string, pressed: boolean, click: () => void): HTMLElement =>
      h(
        "button",
        {
          type: "button",
          class: "small",
          "aria-pressed": String(pressed),
          on: {
            click: () => {
              click();
              shown = null;
              update();
            },
          },
        },
        text,
      );

    const openGraph = (graph: Graph): void => {
      close();
      shown = graph;
      const { lines, nodes } = listingOf(state, graph);
      const place = h("div", { class: "editor" });
      const columns = h("div", { class: "columns" });
      const bar = h("div", { class: "bar" });
      const made = kernelText(state);
      sources = new SourcePane(graph, choose);
      const sided = !sources.isEmpty && (withSources ?? parent.clientWidth >= WIDE);
      replace(
        bar,
        !sources.isEmpty && toggle("Your code", sided, () => (withSources = !sided)),
        made !== null && toggle("Kernels", withKernels, () => (withKernels = !withKernels)),
      );
      replace(columns, sided && sources.element, place);
      if (!sided) sources = null;
      replace(parent, bar.childElementCount > 0 && bar, columns);
      reader = editor!.reader({
        parent: place,
        root,
        text: lines.join("\n"),
        label: `Code of the ${graph.role} graph`,
        onLine(line) {
          own = true;
          state.openNode(nodes[line] ?? -1);
          own = false;
        },
      });
      if (made !== null && withKernels)
        kernels = new KernelPane(columns, context, editor!, graph, made, choose, () => mark(false));
    };

    const mark = (scroll: boolean): void => {
      const { graph } = state;
      const { nodes } = state.selection;
      if (!graph) return;
      const { lineOf } = listingOf(state, graph);
      reader?.mark(
        nodes.flatMap((index) => lineOf.get(index) ?? []),
        scroll,
      );
      sources?.mark(nodes);
      kernels?.mark(nodes, true);
    };

    const update = (): void => {
      const { graph } = state;
      if (!graph && !state.stage?.code.size) {
        close();
        shown = null;
        replace(parent, noGraph(state));
        return;
      }
      if (!editor) return;
      if (!graph) {
        if (shown !== state.stage) openTexts(state.stage!);
        return;
      }
      const fresh = shown !== graph;
      if (fresh) openGraph(graph);
      if (fresh || marked !== state.selection.nodes) mark(!own);
      marked = state.selection.nodes;
    };

    const openTexts = (stage: StageRecord): void => {
      close();
      shown = stage;
      const place = h("div", { class: "editor" });
      replace(parent, place);
      reader = editor!.reader({ parent: place, root, text: codeOf(stage), label: `Code of the stage ${stage.name}` });
    };

    replace(parent, notice("loading", "Loading the code view …"));
    host.editor().then(
      (loaded) => {
        if (gone) return;
        editor = loaded;
        update();
      },
      (error: unknown) => {
        if (!gone)
          replace(
            parent,
            notice("error", "The code view could not be loaded.", `${String(error)} The other views still work.`),
          );
      },
    );
    return {
      update,
      destroy() {
        gone = true;
        close();
      },
    };
  },
};

/** All texts of a stage, each under its name. */
function codeOf(stage: StageRecord): string {
  return [...stage.code].map(([name, text]) => `# ${name}\n${text.trimEnd()}\n`).join("\n\n");
}
