// One function that was compiled for several sets of inputs (`aotviz.compare_inputs`): a sentence for each difference,
// and below it the boards, wrappers and graphs of the sets beside each other.

import { type Child, h, quoted, replace } from "../../dom";
import { plural } from "../../format";
import type { State } from "../../state";
import { chip } from "../table";
import type { Context, Mounted, View } from "../view";
import { boards, type Column, columnNeeds, graphs, wrappers } from "./columns";

const MOST_SAID = 3; // sentences that are shown at first

export const compared: View = {
  id: "compared",
  title: "Side by side",
  applies: ({ recording }) => recording.index.compared !== null,
  needs: (state) => columnNeeds(state.recording, columnsOf(state)),
  badge: ({ recording }) => String(recording.index.compared?.sets.length ?? ""),
  mount(parent: HTMLElement, { state, layouter }: Context): Mounted {
    let shown: unknown = null;
    let asText = false;
    let everything = false; // whether all sentences are shown
    const page = h("div", { class: "page compared" });
    const update = (): void => {
      const { index } = state.recording;
      if (shown === index || !index.compared) return;
      shown = index;
      const { sentences, function: name, sets } = index.compared;
      const columns = columnsOf(state);
      const drawn = h("div", {});
      const draw = (): void => replace(drawn, graphs(state, layouter, columns, asText));
      const form = h(
        "button",
        {
          type: "button",
          class: "small",
          on: {
            click: () => {
              asText = !asText;
              form.textContent = asText ? "Graphs as drawings" : "Graphs as text";
              draw();
            },
          },
        },
        asText ? "Graphs as drawings" : "Graphs as text",
      );
      const rest = h(
        "details",
        { open: everything },
        h("summary", {}, `${plural(sentences.length - MOST_SAID, "more difference")}`),
        said(sentences.slice(MOST_SAID)),
      );
      rest.addEventListener("toggle", () => (everything = rest.open));
      draw();
      replace(
        page,
        h(
          "div",
          { class: "differences" },
          h(
            "p",
            { class: "lead" },
            h("code", {}, name),
            ` for ${plural(sets.length, "set")} of inputs: `,
            sentences.length ? plural(sentences.length, "difference") : "nothing differs",
            h("span", { class: "spring" }),
            h("span", { class: "muted" }, h("i", { class: "lit" }), " differs from another set"),
            form,
          ),
          said(sentences.slice(0, MOST_SAID)),
          sentences.length > MOST_SAID && rest,
        ),
        boards(state, columns),
        wrappers(state, columns),
        drawn,
      );
    };
    replace(parent, page);
    update();
    return { update, destroy() {} };
  },
};

function said(sentences: readonly string[]): HTMLElement {
  return h(
    "ul",
    {},
    sentences.map((sentence) => h("li", {}, quoted(sentence))),
  );
}

function columnsOf(state: State): Column[] {
  const { compilations, compared: found } = state.recording.index;
  return (found?.sets ?? []).map(({ name, compilation, error }) => {
    const position = compilations.findIndex(({ id }) => id === compilation);
    const open = (): void => {
      state.openCompilation(position);
      state.openView("code");
    };
    const title = (): Child =>
      position < 0
        ? name
        : h("button", { type: "button", class: "link", title: "open its stages", on: { click: open } }, name);
    const { kind, error: failed } = compilations[position] ?? { kind: "", error: null };
    return { compilation: position, head: () => [h("h3", {}, title()), kind && !failed && chip(kind)], error };
  });
}
