// Shows what changed between two graphs, as text or node by node. They are the graphs of this stage and the previous
// one, of any two stages, or of two compilations.

import { counts, diffLines, spans } from "../../code/diff";
import { h, notice, replace } from "../../dom";
import type { Editor } from "../../editor/types";
import { plural } from "../../format";
import type { Graph } from "../../graph";
import type { Place, State } from "../../state";
import { noGraph, toNextGraph, withoutGraph } from "../absent";
import { listingIn, listingOf } from "../listings";
import { chip, reselect } from "../table";
import type { Context, Mounted, View } from "../view";
import { nodeTable } from "./nodes";
import { opponent } from "./opponent";

const WIDE = 1200; // pixels from which two columns are readable

export const diff: View = {
  id: "diff",
  title: "Diff",
  isEmpty: withoutGraph,
  needs: (state) => [...state.graphNeed(), ...state.oppositeNeed()],
  mount(parent: HTMLElement, { state, host, root }: Context): Mounted {
    let editor: Editor | null = null;
    let view: { destroy(): void } | null = null;
    let shown = "";
    let drawn: Graph | null = null;
    let among: unknown = null; // the compilations to compare with
    let byNode = false;
    let sideBySide: boolean | null = null; // null until the reader chooses: then the width decides
    let gone = false;

    const bar = (...children: Parameters<typeof h>[2][]): HTMLElement =>
      h(
        "div",
        { class: "bar" },
        h("label", { class: "muted" }, "compared with ", opponent(state)),
        ...children,
        h("span", { class: "spring" }),
        h(
          "span",
          { class: "choice", role: "radiogroup", "aria-label": "Compare by" },
          (
            [
              ["text", false],
              ["nodes", true],
            ] as const
          ).map(([text, value]) =>
            h(
              "button",
              {
                type: "button",
                class: "small",
                role: "radio",
                "aria-checked": String(byNode === value),
                on: { click: () => redraw(() => (byNode = value)) },
              },
              `by ${text}`,
            ),
          ),
        ),
        h(
          "button",
          {
            type: "button",
            class: "small",
            disabled: byNode,
            on: { click: () => redraw(() => (sideBySide = !isWide())) },
          },
          isWide() ? "In one column" : "Side by side",
        ),
      );
    const isWide = (): boolean => sideBySide ?? parent.clientWidth >= WIDE;
    const redraw = (change: () => void): void => {
      change();
      shown = "";
      update();
    };
    const empty = (title: string, advice: string): void => replace(parent, bar(), notice("empty", title, advice));
    const update = (): void => {
      const { graph, selection, opposite } = state;
      const key = JSON.stringify([selection.compilation, selection.stage, selection.role, opposite, byNode, isWide()]);
      if (!editor && !byNode) return;
      if (shown === key && drawn === graph && among === state.recording.index) return reselect(parent);
      [shown, drawn, among] = [key, graph, state.recording.index];
      view?.destroy();
      view = null;
      const before = opposite && graphAt(state, opposite);
      if (!graph) return replace(parent, bar(), noGraph(state));
      if (!before) {
        return selection.against
          ? empty(
              "The other compilation has no such graph.",
              "It has no stage of this name with a graph. Select another stage here, or compare with another compilation.",
            )
          : replace(
              parent,
              bar(),
              notice(
                "empty",
                "This is the first graph.",
                "No earlier stage has a graph. Select a later stage, or another graph to compare with.",
                toNextGraph(state),
              ),
            );
      }
      if (byNode) {
        replace(
          parent,
          bar(),
          nodeTable(
            state,
            before,
            graph,
            opposite.compilation === selection.compilation ? null : state.recording.compilation(opposite.compilation),
          ),
        );
      } else {
        showText(state.recording.compilation(opposite.compilation), before, graph);
      }
    };

    const showText = (compilation: State["compilation"], before: Graph, graph: Graph): void => {
      const [a, b] = [listingIn(state.recording, compilation, before), listingOf(state, graph)];
      const blocks = diffLines(a.lines, b.lines);
      const { added, removed } = counts(blocks);
      if (!blocks.length) return empty("The graph is the same.", "No line differs.");
      const place = h("div", { class: "editor merge" });
      replace(
        parent,
        bar(
          chip(`+${added}`, "added", plural(added, "line") + " added"),
          chip(`−${removed}`, "removed", plural(removed, "line") + " removed"),
        ),
        place,
      );
      view = editor!.diff({
        parent: place,
        root,
        before: a.lines.join("\n"),
        after: b.lines.join("\n"),
        spans: spans(a.lines, b.lines, blocks),
        sideBySide: isWide(),
        onLine: (line) => state.openNode(b.nodes[line] ?? -1),
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
        if (gone) return;
        byNode = true; // this needs no editor
        update();
        parent.append(
          notice("error", "The text cannot be shown, because the editor could not be loaded.", String(error)),
        );
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

function graphAt(state: State, { compilation, stage, role }: Place): Graph | null {
  const data = state.recording.compilation(compilation);
  return state.recording.graph(data, data.stages[stage]!, role);
}
