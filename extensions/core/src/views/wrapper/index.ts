// The generated Python that runs on every call, and beside it the fact that required each group of lines. Pointing
// at either side marks the other.

import { h, notice, replace } from "../../dom";
import type { Reader } from "../../editor/types";
import type { WrapperNote, WrapperRecord } from "../../wire";
import type { Context, Mounted, View } from "../view";

export const wrapper: View = {
  id: "wrapper",
  title: "Wrapper",
  needs: () => [],
  mount(parent: HTMLElement, { state, host, root }: Context): Mounted {
    let reader: Reader | null = null;
    let shown: WrapperRecord | null | undefined;

    const update = (): void => {
      const record = state.compilation.wrapper;
      if (shown === record) return;
      shown = record;
      reader?.destroy();
      reader = null;
      if (!record) {
        replace(parent, state.compilation.compile_id
          ? notice("empty", "Torch compiled this, not aotviz.", "What torch generated to run on every call is with its stages: see the code of “wrapper” and “lower”.")
          : notice("empty", "No wrapper was generated.", "The compilation stopped before it linked a program; see the last stage."));
        return;
      }
      const notes = [...record.notes].sort((a, b) => a.first - b.first || a.last - b.last);
      const cards = notes.map((note) => card(note));
      const pick = (chosen: readonly number[], scrollCode: boolean): void => {
        cards.forEach((element, i) => element.setAttribute("aria-pressed", String(chosen.includes(i))));
        const first = chosen[0];
        if (first === undefined) return reader?.mark([], false);
        if (!scrollCode) cards[first]!.scrollIntoView({ block: "nearest" });
        reader?.mark(chosen.flatMap((i) => linesOf(notes[i]!, record)), scrollCode);
      };
      cards.forEach((element, i) => {
        element.addEventListener("click", () => pick([i], true));
        element.addEventListener("focus", () => pick([i], true));
        element.addEventListener("mouseenter", () => pick([i], false));
      });
      const place = h("div", { class: "editor" }, notice("loading", "Loading the source …"));
      replace(parent, h("div", { class: "bar" }, h("code", { class: "muted" }, record.filename)),
        h("div", { class: "beside" }, place,
          h("aside", { class: "notes", "aria-label": "Why these lines" }, h("h3", {}, "Why these lines"), cards.length ? cards : h("p", { class: "muted" }, "No line needed a reason: the call passes straight through."))));
      host.editor().then(
        (editor) => {
          if (shown !== record) return;
          place.replaceChildren();
          reader = editor.reader({
            parent: place, root, text: record.source, label: "Generated wrapper",
            notes: notes.map((note) => ({ first: note.first - 1, last: note.last - 1, text: sentence(note) })),
            onLine: (line) => pick(notes.flatMap((note, i) => (note.first - 1 <= line && line < note.last ? [i] : [])), false),
          });
        },
        () => replace(place, h("pre", { tabindex: "0" }, record.source)),
      );
    };
    update();
    return {
      update,
      destroy() {
        shown = undefined;
        reader?.destroy();
      },
    };
  },
};

function linesOf(note: WrapperNote, record: WrapperRecord): number[] {
  const lines: number[] = [];
  const last = Math.min(note.last, record.source.split("\n").length);
  for (let line = Math.max(1, note.first); line <= last; line++) lines.push(line - 1);
  return lines;
}

function sentence(note: WrapperNote): string {
  return note.subject ? `${note.subject}: ${note.fact}` : note.fact;
}

function card(note: WrapperNote): HTMLElement {
  const lines = note.first === note.last ? `line ${note.first}` : `lines ${note.first}–${note.last}`;
  return h("button", { type: "button", class: "note", "aria-pressed": "false" },
    h("span", { class: "where" }, lines), note.subject && h("code", {}, note.subject), h("span", {}, note.fact));
}
