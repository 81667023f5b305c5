// The stage's graph as Python-like code. A click on a line selects its node. A stage that made no graph may have made
// code all the same, as torch's Inductor does: then that is shown.

import { h, notice, replace } from "../../dom";
import type { Editor, Reader } from "../../editor/types";
import type { StageRecord } from "../../wire";
import { listingOf } from "../listings";
import type { Context, Mounted, View } from "../view";

export const code: View = {
  id: "code",
  title: "Code",
  needs(state) {
    const { compilation, stage } = state.selection;
    const graph = state.graphNeed();
    return graph.length || !state.stage?.code.size ? graph : [{ what: "code", compilation, stage }];
  },
  mount(parent: HTMLElement, { state, host, root }: Context): Mounted {
    let editor: Editor | null = null;
    let reader: Reader | null = null;
    let shown: unknown = null;
    let own = false; // the selection came from here: don't scroll
    let gone = false;

    const open = (what: unknown, text: string, label: string, onLine?: (line: number) => void): void => {
      reader?.destroy();
      shown = what;
      const place = h("div", { class: "editor" });
      replace(parent, place);
      reader = editor!.reader({ parent: place, root, text, label, ...(onLine && { onLine }) });
    };

    const update = (): void => {
      const graph = state.graph;
      if (!graph && state.stage?.code.size) {
        if (editor && shown !== state.stage) open(state.stage, codeOf(state.stage), `Code of the stage ${state.stage.name}`);
        return;
      }
      if (!graph) {
        reader?.destroy();
        reader = shown = null;
        replace(parent, notice("empty", "This stage made no graph.", "Pick a later stage, or read its evidence: it only decided something."));
        return;
      }
      if (!editor) return;
      const { lines, nodes, lineOf } = listingOf(state, graph);
      if (shown !== graph) {
        open(graph, lines.join("\n"), `Code of the ${graph.role} graph`, (line) => {
          own = true;
          state.openNode(nodes[line] ?? -1);
          own = false;
        });
      }
      const line = lineOf.get(state.selection.node);
      reader?.mark(line === undefined ? [] : [line], !own);
    };

    replace(parent, notice("loading", "Loading the code view …"));
    host.editor().then(
      (loaded) => {
        if (gone) return;
        editor = loaded;
        update();
      },
      (error: unknown) => {
        if (!gone) replace(parent, notice("error", "The code view could not be loaded.", String(error)));
      },
    );
    return {
      update,
      destroy() {
        gone = true;
        reader?.destroy();
      },
    };
  },
};

/** A stage's texts, one after the other, each under its name. */
function codeOf(stage: StageRecord): string {
  return [...stage.code].map(([name, text]) => `# ${name}\n${text.trimEnd()}\n`).join("\n\n");
}
