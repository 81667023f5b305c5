// What happened when: compilations, stages and torch's events as spans, a lane for each process; cache lookups,
// restarts, graph breaks and failures as marks. A click opens the compilation and the stage that a span belongs to.

import { calledIn } from "../../called";
import { h, notice, replace, unquoted } from "../../dom";
import { plural } from "../../format";
import type { State } from "../../state";
import { explained } from "../../terms";
import type { TimeFrame } from "../../wire";
import type { Context, Mounted, View } from "../view";
import { Chart, drawMark, type Hit, readColours } from "./chart";
import type { Flame } from "./flame";
import { lanesOf, type Lanes, type MarkKind, type Span } from "./lanes";
import { time, zoomed } from "./scale";

const MANY_LANES = 6; // more are folded at first
const DRAG = 4; // pixels until a press becomes a drag
const STEP = 0.15; // of the window, for Shift and an arrow key
const FLAME_KEYS =
  "Equal blocks are one frame. Arrow keys: go from frame to frame. Enter: zoom in or out. Escape: zoom out.";
const KINDS = [
  ["dynamo", "Dynamo"],
  ["aot", "AOTAutograd"],
  ["inductor", "Inductor"],
  ["other", "other"],
] as const;
const MARKS: readonly (readonly [MarkKind, string])[] = [
  ["hit", "cache hit"],
  ["miss", "cache miss"],
  ["bypass", "cache bypass"],
  ["restart", "restart"],
  ["break", "graph break"],
  ["failure", "failure"],
];

const asked = new WeakMap<State, number>(); // the compilation whose restart is to be pointed at

/** Opens the timeline at the restart of a compilation. */
export function showRestart(state: State, compilation = -1): void {
  asked.set(state, compilation);
  state.openView("timeline");
}

export const timeline: View = {
  id: "timeline",
  title: "Timeline",
  isWhole: true,
  needs: () => [
    { what: "rows", kind: "timeline" },
    { what: "rows", kind: "overview" },
  ],
  mount(parent: HTMLElement, context: Context): Mounted {
    const { state, host } = context;
    const chart = new Chart();
    const said = h("output", { class: "said", "aria-live": "polite" });
    const legend = h("div", { class: "legend" });
    let lanes: Lanes | null = null;
    let shown: unknown;
    let framed: readonly TimeFrame[] = [];
    const zoom = (factor: number, at = (chart.window.from + chart.window.to) / 2): void =>
      chart.move(zoomed(chart.window, factor, at));
    const pan = (share: number): void => {
      const { from, to } = chart.window;
      chart.move({ from: from + share * (to - from), to: to + share * (to - from) });
    };
    const button = (text: string, label: string, click: () => void): HTMLElement =>
      h("button", { type: "button", class: "small", title: label, "aria-label": label, on: { click } }, text);
    const tell = (hit: Hit | null): void => replace(said, ...describe(hit, state));
    const choose = (span: Span | null): void => {
      chart.chosen = span;
      tell(span && { span });
      chart.ask();
    };
    const openSpan = ({ compilation, stage }: Span): void => {
      if (compilation >= 0) state.openCompilation(compilation, stage || undefined);
    };
    const unloaded = h("div", { class: "flame" });
    let flame: Flame | null = null;
    let drawn: unknown;
    const showFrames = (): void => {
      if (!view.classList.contains("by-line") || drawn === framed) return;
      host.editor().then(
        (editor) => {
          flame ??= editor.flame(state, (words) => replace(said, ...words));
          flame.show((drawn = framed));
          unloaded.replaceWith(flame.element);
        },
        (error: unknown) => replace(unloaded, notice("error", "The compile time by line is not shown.", String(error))),
      );
    };
    const switchTo = (byLine: boolean): void => {
      view.classList.toggle("by-line", byLine);
      showFrames();
      overTime.ariaPressed = String(!byLine);
      lines.ariaPressed = String(byLine);
      if (byLine) replace(said, h("span", { class: "muted" }, FLAME_KEYS));
      else tell(chart.chosen && { span: chart.chosen });
      chart.ask();
    };
    const pick = (text: string, byLine: boolean): HTMLElement =>
      h(
        "button",
        { type: "button", class: "small", "aria-pressed": String(!byLine), on: { click: () => switchTo(byLine) } },
        text,
      );
    const [overTime, lines] = [pick("Over time", false), pick("By line", true)];
    const choice = h("div", { class: "choice", role: "group", "aria-label": "Compile time" }, overTime, lines);
    const view = h(
      "div",
      { class: "timeline-view" },
      h(
        "div",
        { class: "bar" },
        choice,
        h(
          "span",
          { class: "zooms" },
          button("−", "Zoom out (-)", () => zoom(1 / 1.6)),
          button("+", "Zoom in (+)", () => zoom(1.6)),
          button("Fit", "Show everything (0)", () => chart.move(chart.scale.whole())),
        ),
        h("span", { class: "spring" }),
        legend,
      ),
      chart.axis,
      chart.scroller,
      unloaded,
      h("div", { class: "readout" }, said),
    );
    const stopPointing = follow(chart, zoom, pan, {
      hover(hit) {
        chart.hover = hit;
        chart.canvas.classList.toggle("pointing", hit !== null);
        tell(hit ?? (chart.chosen && { span: chart.chosen }));
        chart.ask();
      },
      click(hit) {
        choose(hit?.span ?? null);
        if (hit?.span) openSpan(hit.span);
        else if (hit?.mark && hit.mark.compilation >= 0) state.openCompilation(hit.mark.compilation);
      },
    });
    chart.canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { key } = event;
      if (key === "+" || key === "=" || key === "-") zoom(key === "-" ? 1 / 1.6 : 1.6, middleOf(chart));
      else if (key === "0") chart.move(chart.scale.whole());
      else if (event.shiftKey && (key === "ArrowLeft" || key === "ArrowRight")) pan(key === "ArrowLeft" ? -STEP : STEP);
      else if (key.startsWith("Arrow")) {
        const next = chart.chosen ? chart.neighbour(chart.chosen, key) : chart.first(state.selection.compilation);
        if (next) {
          choose(next);
          chart.reveal(next);
        }
      } else if ((key === "Enter" || key === " ") && chart.chosen) openSpan(chart.chosen);
      else if (key === "Escape" && chart.chosen) choose(null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const sizes = new ResizeObserver(() => chart.ask());
    const themes = new MutationObserver(() => {
      chart.repaint();
      paintLegend();
    });
    const paintLegend = (): void => {
      if (lanes) replace(legend, ...legendOf(lanes, view));
    };
    const update = (): void => {
      const frames = state.recording.rows("overview")?.part.overview?.frames ?? [];
      choice.hidden = frames.length === 0;
      if (frames !== framed) {
        framed = frames;
        showFrames();
      }
      const rows = state.recording.rows("timeline");
      const { compilation } = state.selection;
      chart.compilation = compilation;
      if (rows === shown && lanes) return chart.ask();
      shown = rows;
      lanes = rows ? lanesOf(rows, state.recording.index) : null;
      if (!lanes?.lanes.length) {
        const advice = "Neither the log nor the stages of its compilations say when something happened.";
        replace(parent, notice("empty", "This recording contains no times.", advice));
        return;
      }
      if (view.parentElement !== parent) {
        replace(parent, view);
        const body = view.closest(".workbench");
        if (body) themes.observe(body, { attributes: true, attributeFilter: ["data-theme"] });
        sizes.observe(chart.scroller);
      }
      const first = chart.canvas.ariaLabel === null;
      const many = first && lanes.lanes.length > MANY_LANES;
      chart.show(lanes, many ? new Set(lanes.lanes.map(({ name }) => name)) : null);
      const spans = lanes.lanes.reduce((sum, lane) => sum + lane.spans, 0);
      chart.canvas.ariaLabel =
        `Timeline: ${plural(spans, "span")} of ${plural(lanes.lanes.length, "process", "processes")} in ` +
        `${time(lanes.length)}. Arrow keys go from span to span; Enter opens one.`;
      paintLegend();
      const marks = lanes.lanes.flatMap((lane) => lane.marks);
      const mark = marks.find((one) => one.kind === "restart" && one.compilation === asked.get(state));
      asked.delete(state);
      chart.hover = mark ? { mark } : null;
      tell(chart.hover);
    };
    update();
    return {
      update,
      destroy() {
        chart.destroy();
        sizes.disconnect();
        themes.disconnect();
        stopPointing();
      },
    };
  },
};

/** The place that keys zoom at: the chosen span's, else the middle. */
function middleOf({ chosen, scale, window: { from, to } }: Chart): number {
  const at = chosen ? scale.fold((chosen.start + chosen.end) / 2) : NaN;
  return at > from && at < to ? at : (from + to) / 2;
}

/** What the pointer is at, in words. */
function describe(hit: Hit | null, { recording }: State): (HTMLElement | string)[] {
  const about = (compilation: number): HTMLElement | string => {
    const head = recording.index.compilations[compilation];
    return head ? h("span", {}, " · ", calledIn(head)) : "";
  };
  if (hit?.mark)
    return [h("b", {}, unquoted(hit.mark.words)), about(hit.mark.compilation), ` · at ${time(hit.mark.at)}`];
  if (!hit?.span)
    return [
      h(
        "span",
        { class: "muted" },
        "Drag, or Shift ← →: pan. Ctrl and the wheel, or + −: zoom. Click, or Enter: open.",
      ),
    ];
  const { name, start, end, finished, compilation, stage } = hit.span;
  const took = finished ? (end > start ? time(end - start) : "an instant") : "not finished";
  return [
    h("b", {}, name),
    ` · ${took} · at ${time(start)}`,
    about(compilation),
    stage && stage !== name ? ` · stage ${stage}` : "",
  ];
}

/** The colours and forms that occur. */
function legendOf({ lanes }: Lanes, view: HTMLElement): HTMLElement[] {
  const kinds = new Set(lanes.flatMap(({ rows }) => rows.flatMap((row) => row.map(({ kind }) => kind))));
  const marks = new Set(lanes.flatMap((lane) => lane.marks.map(({ kind }) => kind)));
  const colour = readColours(view);
  return [
    ...KINDS.filter(([kind]) => kinds.has(kind)).map(([kind, text]) => {
      const box = h("i", {});
      box.style.background = colour[`${kind}-fill`];
      box.style.borderColor = colour[kind];
      return h("span", explained("colours", text), box, text);
    }),
    ...MARKS.filter(([kind]) => marks.has(kind)).map(([kind, text]) => {
      const ratio = devicePixelRatio || 1;
      const canvas = h("canvas", {
        width: Math.round(14 * ratio),
        height: Math.round(14 * ratio),
        "aria-hidden": "true",
      });
      const ctx = canvas.getContext("2d")!;
      ctx.scale(ratio, ratio);
      drawMark(ctx, kind, 7, 7, colour);
      return h("span", explained("colours", text), canvas, text);
    }),
  ];
}

interface Pointed {
  hover(hit: Hit | null): void;
  click(hit: Hit | null): void;
}

/** Listens to the pointer: drag pans, the wheel zooms, a click chooses. Returns a function that stops what is left. */
function follow(
  chart: Chart,
  zoom: (factor: number, at: number) => void,
  pan: (share: number) => void,
  pointed: Pointed,
): () => void {
  const { canvas, scroller } = chart;
  const local = (event: MouseEvent): [x: number, y: number] => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const pointers = new Map<number, number>(); // x of each, for two fingers
  let from: { x: number; y: number; at: typeof chart.window; scrolled: number; moved: boolean } | null = null;
  let apart = 0; // of two fingers
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const [x, y] = local(event);
    pointers.set(event.pointerId, x);
    from = { x, y, at: chart.window, scrolled: scroller.scrollTop, moved: false };
    apart = pointers.size === 2 ? distance(pointers) : 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = local(event);
    if (!pointers.has(event.pointerId)) return pointed.hover(chart.at(x, y));
    pointers.set(event.pointerId, x);
    if (!from) return;
    if (apart && pointers.size === 2) {
      const [a, b] = [...pointers.values()] as [number, number];
      zoom(Math.max(1, distance(pointers)) / apart, chart.place((a + b) / 2));
      apart = Math.max(1, distance(pointers));
      from.moved = true;
      return;
    }
    from.moved ||= Math.hypot(x - from.x, y - from.y) > DRAG;
    if (!from.moved) return;
    canvas.classList.add("dragging");
    const { from: first, to } = from.at;
    const moved = ((from.x - x) / chart.width) * (to - first);
    chart.move({ from: first + moved, to: to + moved });
    scroller.scrollTop = from.scrolled + from.y - y;
  });
  const end = (event: PointerEvent): void => {
    pointers.delete(event.pointerId);
    canvas.classList.remove("dragging");
    if (from && !from.moved && event.type === "pointerup") pointed.click(chart.at(...local(event)));
    if (!pointers.size) from = null;
    apart = 0;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => pointed.hover(null));
  // On the canvas, Ctrl and the wheel zoom; so does the wheel alone once the canvas has the focus and nothing is below.
  const wheel = (event: WheelEvent): void => {
    const focused = (canvas.getRootNode() as ShadowRoot | Document).activeElement === canvas;
    const scrolls = scroller.scrollHeight > scroller.clientHeight + 1;
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !sideways && (scrolls || !focused)) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 400 : 1;
    if (sideways && !event.ctrlKey) return pan(((event.deltaX || event.deltaY) * unit) / chart.width);
    const delta = Math.max(-240, Math.min(240, event.deltaY * unit));
    zoom(Math.exp(-delta / 220), chart.place(local(event)[0]));
  };
  canvas.addEventListener("wheel", wheel, { passive: false });
  return () => canvas.removeEventListener("wheel", wheel);
}

function distance(pointers: ReadonlyMap<number, number>): number {
  const [a, b] = [...pointers.values()] as [number, number];
  return Math.abs(a - b);
}
