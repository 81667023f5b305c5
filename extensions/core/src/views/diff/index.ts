// What this stage changed: its graph's code against that of the stage before that has a graph.

import { counts, diffLines, spans } from "../../code/diff";
import { h, notice, replace } from "../../dom";
import type { Editor } from "../../editor/types";
import { plural } from "../../format";
import { previousGraph } from "../../model";
import { chip } from "../table";
import { listingOf } from "../listings";
import type { Context, Mounted, View } from "../view";

const WIDE = 1200; // pixels from which two columns are readable

export const diff: View = {
  id: "diff",
  title: "Diff",
  needs(state) {
    const earlier = previousGraph(state.compilation, state.selection.stage, state.selection.role);
    return [...state.graphNeed(), ...(earlier ? state.graphNeed(earlier.stage, earlier.role) : [])];
  },
  mount(parent: HTMLElement, { state, host, root }: Context): Mounted {
    let editor: Editor | null = null;
    let view: { destroy(): void } | null = null;
    let shown = "";
    let sideBySide: boolean | null = null; // until the reader chooses, by the width there is
    let gone = false;

    const update = (): void => {
      const { compilation, graph, selection } = state;
      const earlier = previousGraph(compilation, selection.stage, selection.role);
      const before = earlier && state.recording.graph(compilation, compilation.stages[earlier.stage]!, earlier.role);
      if (!graph || !before || !earlier) {
        view?.destroy();
        view = null;
        shown = "";
        replace(parent, graph
          ? notice("empty", "This is the first graph.", "There is no earlier one to compare it with. Step on to the next stage.")
          : notice("empty", "This stage made no graph.", "Pick a stage that has one: the list shows its nodes."));
        return;
      }
      if (!editor) return;
      const two = sideBySide ?? parent.clientWidth >= WIDE;
      const key = [selection.compilation, selection.stage, selection.role, two].join();
      if (shown === key) return;
      shown = key;
      view?.destroy();
      view = null;
      const [a, b] = [listingOf(state, before), listingOf(state, graph)];
      const blocks = diffLines(a.lines, b.lines);
      const { added, removed } = counts(blocks);
      const from = `${compilation.stages[earlier.stage]!.name} · ${earlier.role}`;
      const bar = h("div", { class: "bar" },
        h("span", { class: "muted" }, "compared with ", h("b", {}, from)),
        chip(`+${added}`, "added", plural(added, "line") + " added"), chip(`−${removed}`, "removed", plural(removed, "line") + " removed"),
        h("span", { class: "spring" }),
        h("button", {
          type: "button", class: "small",
          on: {
            click: () => {
              sideBySide = !two;
              update();
            },
          },
        }, two ? "In one column" : "Side by side"));
      if (!blocks.length) {
        replace(parent, bar, notice("empty", "The graph is the same.", "This stage changed no line of it."));
        return;
      }
      const place = h("div", { class: "editor merge" });
      replace(parent, bar, place);
      view = editor.diff({
        parent: place, root, before: a.lines.join("\n"), after: b.lines.join("\n"), spans: spans(a.lines, b.lines, blocks),
        sideBySide: two, onLine: (line) => state.openNode(b.nodes[line] ?? -1),
      });
    };

    replace(parent, notice("loading", "Loading the diff …"));
    host.editor().then(
      (loaded) => {
        if (gone) return;
        editor = loaded;
        update();
      },
      (error: unknown) => {
        if (!gone) replace(parent, notice("error", "The diff could not be loaded.", String(error)));
      },
    );
    return {
      update,
      destroy() {
        gone = true;
        view?.destroy();
      },
    };
  },
};
