// The editor bundle: read-only Python with notes and marks, and a diff whose changes are computed by `code/diff.ts`
// (CodeMirror's own diff takes seconds on a large graph). Loaded when a view first
// shows code, with what else the first picture does not need.

import { python } from "@codemirror/lang-python";
import { Change, MergeView, unifiedMergeView } from "@codemirror/merge";
import { EditorState, type Extension, RangeSet, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  EditorView,
  gutter,
  GutterMarker,
  hoverTooltip,
  lineNumbers,
} from "@codemirror/view";

import { quoted, replace } from "../dom";
import { needsOf, stepsOf } from "../tour/steps";
import { mountBackward } from "../views/backward/view";
import { mountEvents } from "../views/events/view";
import { aliveOf } from "../views/memory/alive";
import { mountMemory } from "../views/memory/view";
import { Flame } from "../views/timeline/flame";
import { PROGRAMS } from "./programs";
import { theme } from "./theme";
import type { DiffOptions, Editor, Note, Reader, ReaderOptions } from "./types";

const SIDEWAYS = 80; // pixels

const setMarks = StateEffect.define<readonly number[]>();
const marked = Decoration.line({ class: "aot-marked" });

const marks = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(setMarks)) continue;
      const { doc } = transaction.state;
      const lines = [...new Set(effect.value)].filter((line) => line >= 0 && line < doc.lines).sort((a, b) => a - b);
      value = Decoration.set(lines.map((line) => marked.range(doc.line(line + 1).from)));
    }
    return value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** Shift with ← or → scrolls sideways; without it, they belong to the workbench. */
const sideways = EditorView.domEventHandlers({
  keydown({ key, shiftKey }, view) {
    const step = shiftKey ? ({ ArrowLeft: -1, ArrowRight: 1 }[key] ?? 0) : 0;
    view.scrollDOM.scrollLeft += step * SIDEWAYS;
    return step !== 0;
  },
});

/** Scrolls only the editor: by default, CodeMirror scrolls the notebook around it as well. */
const scrollsAlone = EditorView.scrollHandler.of((view, range, { y, yMargin }) => {
  const scroller = view.dom.closest<HTMLElement>(".cm-mergeView") ?? view.scrollDOM;
  const line = view.lineBlockAt(range.head);
  const top = view.documentTop + line.top - scroller.getBoundingClientRect().top;
  const room = scroller.clientHeight - line.height;
  if (y === "center") scroller.scrollTop += top - room / 2;
  else if (top < yMargin) scroller.scrollTop += top - yMargin;
  else if (top > room - yMargin) scroller.scrollTop += top - room + yMargin;
  return true;
});

function shared(label: string): Extension {
  return [
    scrollsAlone,
    sideways,
    lineNumbers(),
    python(),
    theme,
    EditorState.readOnly.of(true),
    EditorView.editable.of(false),
    EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
    EditorState.phrases.of({ "$ unchanged lines": "$ unchanged lines · show" }),
  ];
}

/** Reports the line that is clicked or reached with the arrow keys. */
function lineClicks(onLine: ((line: number) => void) | undefined): Extension {
  if (!onLine) return [];
  let current = -1; // from 0
  return EditorView.domEventHandlers({
    click(event, view) {
      const at = view.posAtCoords({ x: event.clientX, y: event.clientY }, false);
      if (view.state.selection.main.empty) onLine((current = view.state.doc.lineAt(at).number - 1));
    },
    keydown(event, view) {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
      if (!step || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
      const first = view.lineBlockAtHeight(view.scrollDOM.scrollTop).from;
      if (current < 0) current = view.state.doc.lineAt(first).number - 1 - Math.sign(step);
      current = Math.max(0, Math.min(view.state.doc.lines - 1, current + step));
      view.dispatch({ effects: EditorView.scrollIntoView(view.state.doc.line(current + 1).from, { yMargin: 40 }) });
      onLine(current);
      return true;
    },
  });
}

function reader(options: ReaderOptions): Reader {
  const view = new EditorView({
    parent: options.parent,
    root: options.root,
    state: EditorState.create({
      doc: options.text,
      extensions: [shared(options.label), marks, lineClicks(options.onLine), options.notes ? noted(options.notes) : []],
    }),
  });
  return {
    mark(lines, scroll) {
      const effects: StateEffect<unknown>[] = [setMarks.of(lines)];
      const first = lines[0];
      if (scroll && first !== undefined && first >= 0 && first < view.state.doc.lines) {
        effects.push(EditorView.scrollIntoView(view.state.doc.line(first + 1).from, { y: "center" }));
      }
      view.dispatch({ effects });
    },
    destroy: () => view.destroy(),
  };
}

class NoteMarker extends GutterMarker {
  override toDOM(): HTMLElement {
    const bar = document.createElement("div");
    bar.className = "aot-noted";
    return bar;
  }
}

/** A bar beside the lines that have a note, and the note itself on hover. */
function noted(notes: readonly Note[]): Extension {
  const marker = new NoteMarker();
  return [
    gutter({
      class: "aot-notes",
      markers(view) {
        const builder = new RangeSetBuilder<GutterMarker>();
        const lines = new Set<number>();
        for (const note of notes) {
          const last = Math.min(note.last, view.state.doc.lines - 1);
          for (let line = Math.max(0, note.first); line <= last; line++) lines.add(line);
        }
        if (!lines.size) return RangeSet.empty;
        for (const line of [...lines].sort((a, b) => a - b)) {
          const { from } = view.state.doc.line(line + 1);
          builder.add(from, from, marker);
        }
        return builder.finish();
      },
    }),
    hoverTooltip((view, position) => {
      const line = view.state.doc.lineAt(position);
      const found = notes.filter((note) => note.first <= line.number - 1 && line.number - 1 <= note.last);
      if (!found.length) return null;
      return {
        pos: line.from,
        above: true,
        create: () => {
          const dom = document.createElement("div");
          for (const note of found) {
            const entry = document.createElement("div");
            replace(entry, quoted(note.text));
            dom.append(entry);
          }
          return { dom };
        },
      };
    }),
  ];
}

function diff(options: DiffOptions): { destroy(): void } {
  const changes = options.spans.map(({ fromA, toA, fromB, toB }) => new Change(fromA, toA, fromB, toB));
  const diffConfig = { override: () => changes };
  const collapseUnchanged = { margin: 3, minSize: 6 };
  if (options.sideBySide) {
    return new MergeView({
      parent: options.parent,
      root: options.root,
      diffConfig,
      collapseUnchanged,
      gutter: true,
      highlightChanges: true,
      a: { doc: options.before, extensions: shared("Code before this stage") },
      b: { doc: options.after, extensions: [shared("Code after this stage"), lineClicks(options.onLine)] },
    });
  }
  return new EditorView({
    parent: options.parent,
    root: options.root,
    state: EditorState.create({
      doc: options.after,
      extensions: [
        shared("Changes of this stage"),
        lineClicks(options.onLine),
        unifiedMergeView({
          original: options.before,
          diffConfig,
          collapseUnchanged,
          mergeControls: false,
          gutter: true,
          syntaxHighlightDeletions: false,
        }),
      ],
    }),
  });
}

export const editor: Editor = {
  programs: PROGRAMS,
  reader,
  diff,
  flame: (state, tell) => new Flame(state, tell),
  alive: aliveOf,
  views: { backward: mountBackward, events: mountEvents, memory: mountMemory },
  tour: { needsOf, stepsOf },
};
