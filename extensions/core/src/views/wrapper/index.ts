// Shows the generated Python that runs on every call, with the facts that required each line: the autograd.Function
// with its forward and backward, and the function that is called. Pointing at a line, or moving to it with the arrow
// keys, shows its facts. Selecting a fact marks its lines.

import { h, notice, quoted, replace } from "../../dom";
import type { Reader } from "../../editor/types";
import type { WrapperNote, WrapperRecord } from "../../wire";
import { notYet } from "../absent";
import type { Context, Mounted, View } from "../view";
import { sectionsOf, subjects, takeAsked } from "./lines";

export const wrapper: View = {
  id: "wrapper",
  title: "Wrapper",
  isEmpty: ({ wrapper: made }) => !made,
  needs: () => [],
  mount(parent: HTMLElement, { state, host, root }: Context): Mounted {
    let reader: Reader | null = null;
    let shown: WrapperRecord | null | undefined;
    let line = -1; // a line to show that has no note
    let pick: ((chosen: readonly number[], scrollCode: boolean) => void) | null = null;

    const update = (): void => {
      const record = state.compilation.wrapper;
      if (shown !== record) build(record);
      const asked = takeAsked(state);
      if (asked && record) {
        const notes = ordered(record);
        line = asked.line;
        pick?.(
          asked.notes.map((number) => notes.indexOf(record.notes[number]!)),
          true,
        );
      }
    };

    const build = (record: WrapperRecord | null): void => {
      shown = record;
      reader?.destroy();
      reader = pick = null;
      if (!record) {
        replace(
          parent,
          state.compilation.compile_id
            ? notice(
                "empty",
                "Torch compiled this function, not aotviz.",
                "To see what torch generated to run on every call, open the code of the stages “wrapper” and “lower”.",
              )
            : state.compilation.stages.some(({ name }) => name === "signature")
              ? notice("empty", "An export has no wrapper.", "The result of an export is the graph and its signature.")
              : notYet(state, "No wrapper is generated"),
        );
        return;
      }
      const notes = ordered(record);
      const cards = notes.map((note) => card(note));
      const said = h("output", { class: "fact", "aria-live": "polite" });
      let wanted: readonly number[] = [];
      pick = (chosen, scrollCode) => {
        wanted = chosen;
        cards.forEach((element, i) => element.setAttribute("aria-pressed", String(chosen.includes(i))));
        replace(said, quoted(chosen.map((i) => sentence(notes[i]!)).join(" · ")));
        const first = chosen[0];
        if (first === undefined) return reader?.mark(line < 0 ? [] : [line], line >= 0);
        line = -1;
        bringIntoView(cards[first]!);
        reader?.mark(
          chosen.flatMap((i) => linesOf(notes[i]!, record)),
          scrollCode,
        );
      };
      const choose = pick;
      cards.forEach((element, i) => {
        element.addEventListener("click", () => choose([i], true));
        element.addEventListener("focus", () => choose([i], true));
        element.addEventListener("mouseenter", () => choose([i], false));
      });
      const sections = sectionsOf(record.source);
      const place = h("div", { class: "editor" }, notice("loading", "Loading the source …"));
      replace(
        parent,
        h(
          "div",
          { class: "bar" },
          sections.map(({ title, line }) =>
            h(
              "button",
              {
                type: "button",
                class: "small",
                on: { click: () => reader?.mark([line], true) },
              },
              title,
            ),
          ),
          h("span", { class: "spring" }),
          about(notes, choose),
          h("code", { class: "muted" }, record.filename),
        ),
        h(
          "div",
          { class: "beside" },
          place,
          h(
            "aside",
            { class: "notes", "aria-label": "Why these lines" },
            cards.length
              ? grouped(sections, notes, cards)
              : h("p", { class: "muted" }, "No line has a note: the wrapper only passes the call on to the graph."),
          ),
        ),
        said,
      );
      host.editor().then(
        (editor) => {
          if (shown !== record) return;
          place.replaceChildren();
          reader = editor.reader({
            parent: place,
            root,
            text: record.source,
            label: "Generated wrapper; arrow keys go from line to line",
            notes: notes.map((note) => ({ first: note.first - 1, last: note.last - 1, text: sentence(note) })),
            onLine: (line) =>
              choose(
                notes.flatMap((note, i) => (note.first - 1 <= line && line < note.last ? [i] : [])),
                false,
              ),
          });
          if (wanted.length || line >= 0) choose(wanted, true);
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

function ordered(record: WrapperRecord): WrapperNote[] {
  return [...record.notes].sort((a, b) => a.first - b.first || a.last - b.last);
}

/** A menu of what the facts are about: an input or an output. */
function about(
  notes: readonly WrapperNote[],
  choose: (chosen: readonly number[], scrollCode: boolean) => void,
): HTMLElement | null {
  const names = [...new Set(notes.flatMap(({ subject }) => (subject ? subjects(subject) : [])))].sort();
  if (!names.length) return null;
  const select = h(
    "select",
    { "aria-label": "Lines about" },
    h("option", { value: "" }, "all lines"),
    names.map((name) => h("option", { value: name }, `about ${name}`)),
  );
  select.addEventListener("change", () =>
    choose(
      notes.flatMap(({ subject }, i) => (select.value && subjects(subject).includes(select.value) ? [i] : [])),
      true,
    ),
  );
  return select;
}

/** The facts, grouped by the part of the source that has their lines. */
function grouped(
  sections: readonly { title: string; line: number }[],
  notes: readonly WrapperNote[],
  cards: readonly HTMLElement[],
): HTMLElement[] {
  const starts = sections.length ? sections : [{ title: "Why these lines", line: 0 }];
  return starts.flatMap(({ title, line }, i) => {
    const end = starts[i + 1]?.line ?? Infinity;
    const inside = cards.filter(
      (_, note) => (i === 0 || line <= notes[note]!.first - 1) && notes[note]!.first - 1 < end,
    );
    return inside.length ? [h("h3", {}, title), ...inside] : [];
  });
}

/** Scrolls only the list: scrollIntoView would scroll the notebook too. */
function bringIntoView(element: HTMLElement): void {
  const list = element.parentElement;
  if (!list) return;
  const [outer, inner] = [list.getBoundingClientRect(), element.getBoundingClientRect()];
  if (inner.bottom < outer.top || inner.top > outer.bottom) list.scrollTop += inner.top - outer.top - 12;
}

function linesOf(note: WrapperNote, record: WrapperRecord): number[] {
  const lines: number[] = [];
  const last = Math.min(note.last, record.source.split("\n").length);
  for (let line = Math.max(1, note.first); line <= last; line++) lines.push(line - 1);
  return lines;
}

function sentence(note: WrapperNote): string {
  return note.subject && !note.fact.includes(note.subject) ? `${note.subject}: ${note.fact}` : note.fact;
}

function card(note: WrapperNote): HTMLElement {
  const lines = note.first === note.last ? `line ${note.first}` : `lines ${note.first}–${note.last}`;
  return h(
    "button",
    { type: "button", class: "note", "aria-pressed": "false" },
    h("span", { class: "where" }, lines),
    note.subject && h("code", {}, note.subject),
    h("span", {}, quoted(note.fact)),
  );
}
