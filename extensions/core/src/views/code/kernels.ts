// Inductor's code for the graph, beside the graph. A click on a kernel marks the nodes that it computes.

import { type Kernel, kernelsIn, kernelsOf, nodesOf } from "../../code/kernels";
import { h, notice, replace } from "../../dom";
import type { Editor, Reader } from "../../editor/types";
import { plural } from "../../format";
import type { Graph } from "../../graph";
import type { Need } from "../../model";
import type { State } from "../../state";
import type { Context } from "../view";

const AHEAD_OF_TIME = "inductor_aot_wrapper_code"; // the text in which AOTInductor calls its kernels

/** The stage whose texts have the kernels of the selected graph, or null. */
export function kernelText({ compilation, selection }: State): number | null {
  const { stages } = compilation;
  const named = stages.findLastIndex(({ code }) => code.has(`inductor ${selection.role}`));
  if (named >= 0) return named;
  const lower = stages.findLastIndex(({ code }) => code.has(AHEAD_OF_TIME));
  return lower >= 0 && ["forward", "backward", "inference"].includes(selection.role) ? lower : null;
}

export class KernelPane {
  private reader: Reader | null = null;
  private kernels: Kernel[] = [];
  private gone = false;
  private readonly place = h("div", { class: "editor" });
  private readonly said = h("span", { class: "muted" });

  constructor(
    parent: HTMLElement,
    private readonly context: Context,
    private readonly editor: Editor,
    private readonly graph: Graph,
    private readonly stage: number,
    private readonly choose: (nodes: readonly number[]) => void,
    private readonly ready: () => void,
  ) {
    parent.append(
      h(
        "section",
        { class: "kernels", "aria-label": "Generated kernels" },
        h("div", { class: "bar" }, this.said),
        this.place,
      ),
    );
    const { compilation } = context.state.selection;
    const need: Need = { what: "code", compilation, stage };
    const coming = context.state.recording.load([need]);
    if (!coming) {
      this.show();
      return;
    }
    replace(this.place, notice("loading", "Loading the generated code …"));
    coming.then(
      () => this.show(),
      (error: unknown) =>
        replace(this.place, notice("error", "The generated code could not be loaded.", String(error))),
    );
  }

  destroy(): void {
    this.gone = true;
    this.reader?.destroy();
  }

  mark(chosen: readonly number[], scroll: boolean): void {
    const kernels = [...new Set(chosen.flatMap((node) => kernelsOf(this.kernels, this.graph.nodes[node]!)))];
    this.reader?.mark(
      kernels.flatMap(({ first, last, calls }) => [...(first < 0 ? [] : [first, last]), ...calls]),
      scroll,
    );
    this.said.textContent = !chosen.length
      ? plural(this.kernels.length, "kernel")
      : !kernels.length
        ? this.kernels.some(({ nodes }) => nodes.length)
          ? "no kernel computes this node as it is: Inductor rewrote or removed it"
          : "no kernel is named after this node: Inductor fused or removed it"
        : kernels.every(({ nodes }) => nodes.length)
          ? kernels.map(({ name }) => name).join(", ")
          : `by operator: ${kernels.map(({ name }) => name).join(", ")}`;
    this.said.title = this.said.textContent;
  }

  private show(): void {
    if (this.gone) return;
    const { code, kernels } = this.context.state.compilation.stages[this.stage]!;
    const name = this.name();
    const text = name === null ? undefined : code.get(name);
    if (name === null || text === undefined)
      return replace(
        this.place,
        notice(
          "empty",
          "No generated code of this graph was recorded.",
          "The graph was not compiled yet, or another backend compiled it.",
        ),
      );
    this.kernels = kernelsIn(text, kernels.get(name));
    replace(this.place);
    this.reader = this.editor.reader({
      parent: this.place,
      root: this.context.root,
      text,
      label: `Generated code of the ${this.graph.role} graph`,
      onLine: (line) => {
        const chosen = this.kernels.filter(
          ({ first, last, calls }) => (first >= 0 && first <= line && line <= last) || calls.includes(line),
        );
        if (chosen.length)
          this.choose([...new Set(chosen.flatMap((kernel) => nodesOf(kernel, this.graph)).map(({ index }) => index))]);
      },
    });
    this.ready();
  }

  private name(): string | null {
    const texts = this.context.state.compilation.stages[this.stage]!.code;
    return [`inductor ${this.graph.role}`, AHEAD_OF_TIME].find((name) => texts.has(name)) ?? null;
  }
}
