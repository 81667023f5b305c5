// Draws the lanes on a canvas. Only what is visible is drawn, and of spans that are smaller than a pixel one per pixel,
// so a frame takes as long as the screen is large, not as the log is long.

import { h } from "../../dom";
import { coloursIn, Frames, sized } from "../../painting";
import type { Lane, Lanes, Mark, MarkKind, Span } from "./lanes";
import { Scale, ticks, time, type Window } from "./scale";

export const AXIS = 24; // pixels
const HEAD = 24; // of a lane: its name
const MARKS = 18; // of a lane: its marks
const ROW = 19; // of a level
const GAP = 8; // between lanes
const TEXT_FROM = 34; // pixels of width from which a span shows its name
const TICK_ROOM = 90; // pixels per tick
const NEAR = 7; // pixels to a mark

export const COLOURS = [
  "background",
  "text",
  "faint",
  "line",
  "sunken",
  "accent",
  "dynamo",
  "dynamo-fill",
  "aot",
  "aot-fill",
  "inductor",
  "inductor-fill",
  "other",
  "other-fill",
  "hit",
  "miss",
  "failure",
] as const;
type Colour = Record<(typeof COLOURS)[number], string> & { readonly sans: string };

export interface Hit {
  readonly span?: Span;
  readonly mark?: Mark;
}

export class Chart {
  readonly canvas = h("canvas", { class: "drawing", tabindex: "0", role: "img" });
  readonly axis = h("canvas", { class: "axis", "aria-hidden": "true" });
  readonly scroller = h("div", { class: "lanes" });
  private readonly labels = h("div", { class: "labels" });
  private readonly spacer = h("div", { class: "spacer" }, this.canvas, this.labels);
  private lanes: Lanes = { lanes: [], began: 0, length: 0, gaps: [] };
  private folded = new Set<string>(); // names of lanes of which only the first row is shown
  private tops: number[] = [];
  private height = 0;
  private readonly frames = new Frames(this.canvas, () => this.paint());
  private colour: Colour | null = null;
  scale = new Scale(this.lanes);
  window: Window = this.scale.whole();
  compilation = -1; // the open one
  chosen: Span | null = null;
  hover: Hit | null = null;

  constructor() {
    this.scroller.append(this.spacer);
    this.scroller.addEventListener("scroll", () => this.ask());
  }

  show(lanes: Lanes, folded: ReadonlySet<string> | null): void {
    const whole = this.scale.whole();
    const all = this.window.from <= whole.from && this.window.to >= whole.to;
    const middle = this.scale.unfold((this.window.from + this.window.to) / 2) + this.lanes.began - lanes.began;
    const size = this.window.to - this.window.from;
    this.lanes = lanes;
    this.scale = new Scale(lanes);
    const at = this.scale.fold(middle);
    this.window = all ? this.scale.whole() : this.scale.bounded({ from: at - size / 2, to: at + size / 2 });
    this.hover = this.chosen = null;
    if (folded) this.folded = new Set(folded);
    this.arrange();
  }

  /** Shows or hides all rows of a lane but the first. */
  toggle(name: string): void {
    if (!this.folded.delete(name)) this.folded.add(name);
    this.arrange();
  }

  isFolded(name: string): boolean {
    return this.folded.has(name);
  }

  move(window: Window): void {
    this.window = this.scale.bounded(window);
    this.ask();
  }

  /** The place (folded microseconds) at a pixel. */
  place(x: number): number {
    const { from, to } = this.window;
    return from + (x / this.width) * (to - from);
  }

  get width(): number {
    return this.canvas.clientWidth || 1;
  }

  repaint(): void {
    this.colour = null;
    this.ask();
  }

  ask(): void {
    this.frames.ask();
  }

  destroy(): void {
    this.frames.stop();
  }

  /** What is at a pixel of the canvas. */
  at(x: number, y: number): Hit | null {
    const down = y + this.scroller.scrollTop;
    const number = this.tops.findLastIndex((top) => top <= down);
    const lane = this.lanes.lanes[number];
    if (!lane) return null;
    let row = down - this.tops[number]! - HEAD;
    if (lane.marks.length && row < MARKS) {
      if (row < 0) return null;
      const near = lane.marks.filter((mark) => Math.abs(this.x(mark.at) - x) <= NEAR);
      near.sort((a, b) => Math.abs(this.x(a.at) - x) - Math.abs(this.x(b.at) - x));
      return near[0] ? { mark: near[0] } : null;
    }
    row = Math.floor((row - (lane.marks.length ? MARKS : 0)) / ROW);
    const spans = row < 0 || row >= this.levels(lane) ? [] : lane.rows[row]!;
    const us = this.scale.unfold(this.place(x));
    const slack = this.scale.unfold(this.place(x + 2)) - us;
    // The last that begins before; else one that is as near as two pixels.
    const found = spans[firstAfter(spans, us + slack) - 1];
    return found && found.end + slack >= us ? { span: found } : null;
  }

  /** Scrolls a span into view, and zooms so that it is neither a hair nor more than the window. */
  reveal(span: Span): void {
    const [start, end] = [this.scale.fold(span.start), this.scale.fold(span.end)];
    const { from, to } = this.window;
    const pixels = ((end - start) / (to - from)) * this.width;
    if (pixels < 3 || start < from || end > to) {
      const size = pixels < 3 ? (end - start) * 8 : Math.max(to - from, (end - start) * 1.2);
      this.move({ from: (start + end) / 2 - size / 2, to: (start + end) / 2 + size / 2 });
    }
    const number = this.lanes.lanes.findIndex(({ rows }) => rows[span.level]?.includes(span));
    const lane = this.lanes.lanes[number];
    if (!lane) return;
    if (span.level >= this.levels(lane)) this.toggle(lane.name);
    const top = this.tops[number]! + HEAD + (lane.marks.length ? MARKS : 0) + span.level * ROW;
    const [seen, room] = [this.scroller.scrollTop, this.scroller.clientHeight];
    if (top < seen || top + ROW > seen + room) this.scroller.scrollTop = top - room / 2;
    this.ask();
  }

  /** The span that a key leads to: the previous or next one in its row, its parent, its first child. */
  neighbour(span: Span, key: string): Span | null {
    const lane = this.lanes.lanes.find(({ rows }) => rows[span.level]?.includes(span));
    const row = lane?.rows[span.level];
    if (!lane || !row) return null;
    const number = this.lanes.lanes.indexOf(lane);
    if (key === "ArrowLeft" || key === "ArrowRight")
      return row[row.indexOf(span) + (key === "ArrowLeft" ? -1 : 1)] ?? null;
    if (key === "ArrowUp") return span.parent ?? last(this.lanes.lanes[number - 1]?.rows[0]);
    const below = lane.rows[span.level + 1]?.find(({ start, end }) => end > span.start && start < span.end);
    return below ?? this.lanes.lanes[number + 1]?.rows[0]?.[0] ?? null;
  }

  /** The first span of a compilation, or of all. */
  first(compilation: number): Span | null {
    const tops = this.lanes.lanes.flatMap(({ rows }) => rows[0] ?? []);
    return tops.find((span) => span.compilation === compilation) ?? tops[0] ?? null;
  }

  private levels(lane: Lane): number {
    return this.folded.has(lane.name) ? Math.min(1, lane.rows.length) : lane.rows.length;
  }

  /** Places the lanes below each other, with their names as buttons. */
  private arrange(): void {
    this.tops = [];
    let top = 0;
    const heads = this.lanes.lanes.map((lane) => {
      this.tops.push(top);
      const deep = lane.rows.length > 1;
      const label = h(
        deep ? "button" : "span",
        {
          class: "lane-name",
          ...(deep && {
            type: "button",
            "aria-expanded": String(!this.folded.has(lane.name)),
            title: this.folded.has(lane.name) ? "show all rows" : "show the first row only",
            on: { click: () => this.press(lane.name) },
          }),
          data: { lane: lane.name },
        },
        lane.name,
        h("small", {}, ` ${lane.spans} ${lane.spans === 1 ? "span" : "spans"}`),
      );
      label.style.top = `${top + 2}px`;
      top += HEAD + (lane.marks.length ? MARKS : 0) + this.levels(lane) * ROW + GAP;
      return label;
    });
    this.height = top;
    this.spacer.style.height = `${top}px`;
    this.labels.replaceChildren(...heads);
    this.ask();
  }

  private press(name: string): void {
    this.toggle(name);
    this.labels.querySelector<HTMLElement>(`[data-lane="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
  }

  private x(us: number): number {
    const { from, to } = this.window;
    return ((this.scale.fold(us) - from) / (to - from)) * this.width;
  }

  private paint(): void {
    const started = performance.now();
    const [width, height] = [this.scroller.clientWidth, this.scroller.clientHeight];
    if (!width || !height) return;
    const colour = (this.colour ??= readColours(this.scroller));
    const ctx = laidOut(this.canvas, width, height, colour.background);
    ctx.textBaseline = "middle";
    ctx.font = `11px ${colour.sans}`;
    this.paintGrid(ctx, height, colour);
    const scrolled = this.scroller.scrollTop;
    this.lanes.lanes.forEach((lane, i) => {
      const top = this.tops[i]! - scrolled;
      const bottom = (this.tops[i + 1] ?? this.height) - scrolled;
      if (bottom < 0 || top > height) return;
      if (i > 0) {
        ctx.fillStyle = colour.line;
        ctx.fillRect(0, top - GAP / 2, width, 1);
      }
      let y = top + HEAD;
      if (lane.marks.length) {
        for (const mark of lane.marks) this.paintMark(ctx, mark, y + MARKS / 2, width, colour);
        y += MARKS;
      }
      for (let level = 0; level < this.levels(lane); level++, y += ROW)
        if (y > -ROW && y < height) this.paintRow(ctx, lane.rows[level]!, y, width, colour);
    });
    this.paintAxis(width, colour);
    this.canvas.ariaBusy = "false";
    performance.measure("aotviz timeline painted", { start: started }); // benchmarks and tests read it
  }

  private paintGrid(ctx: CanvasRenderingContext2D, height: number, colour: Colour): void {
    for (const gap of this.lanes.gaps) {
      const [left, right] = [this.x(gap.start), this.x(gap.end)];
      ctx.fillStyle = colour.sunken;
      ctx.fillRect(left, 0, right - left, height);
      ctx.strokeStyle = colour.line;
      ctx.setLineDash([3, 3]);
      ctx.strokeRect(left, -1, right - left, height + 2);
      ctx.setLineDash([]);
    }
  }

  private paintAxis(width: number, colour: Colour): void {
    const ctx = laidOut(this.axis, width, AXIS, colour.background);
    ctx.textBaseline = "middle";
    ctx.font = `11px ${colour.sans}`;
    const { from, to } = this.window;
    const marks = ticks(from, to, Math.max(1, Math.floor(width / TICK_ROOM)));
    const step = (marks[1] ?? to) - (marks[0] ?? from);
    for (const at of marks) {
      if (at < 0 || at > this.scale.length) continue;
      const us = this.scale.unfold(at);
      if (this.lanes.gaps.some(({ start, end }) => us > start && us < end)) continue;
      const x = ((at - from) / (to - from)) * width;
      ctx.fillStyle = colour.line;
      ctx.fillRect(Math.round(x), AXIS - 6, 1, 6);
      ctx.fillStyle = colour.faint;
      ctx.fillText(time(us, step), x + 3, AXIS / 2 - 1);
    }
    for (const { start, end } of this.lanes.gaps) {
      const [left, right] = [this.x(start), this.x(end)];
      ctx.fillStyle = colour.sunken;
      ctx.fillRect(left, 0, right - left, AXIS);
      ctx.fillStyle = colour.faint;
      ctx.textAlign = "center";
      const length = time(end - start, (end - start) / 10);
      const said = [`${length} idle`, length].find((text) => ctx.measureText(text).width < right - left - 4);
      if (said) ctx.fillText(said, (left + right) / 2, AXIS / 2 - 1);
      ctx.textAlign = "start";
    }
    ctx.fillStyle = colour.line;
    ctx.fillRect(0, AXIS - 1, width, 1);
  }

  private paintRow(
    ctx: CanvasRenderingContext2D,
    spans: readonly Span[],
    y: number,
    width: number,
    colour: Colour,
  ): void {
    const { from, to } = this.window;
    const [begin, end] = [this.scale.unfold(from), this.scale.unfold(to)];
    let drawn = -1; // the last pixel that is drawn, so that a pixel with a hundred spans is drawn once
    for (let i = Math.max(0, firstAfter(spans, begin) - 1); i < spans.length; i++) {
      const span = spans[i]!;
      if (span.start > end) break;
      const left = this.x(span.start);
      const right = Math.max(this.x(span.end), left + 1.5);
      const lit = span === this.chosen || span === this.hover?.span;
      if (right < 0) continue;
      if (right < drawn + 0.7 && !lit) {
        // Go on with the last span that begins within the drawn pixel: it may be longer.
        i = Math.max(i, firstAfter(spans, this.scale.unfold(this.place(drawn + 0.7))) - 2);
        continue;
      }
      drawn = right;
      const [x, w] = [Math.max(-2, left), Math.min(width + 2, right) - Math.max(-2, left)];
      const box = [x, y + 1, Math.max(1.5, w - (w > 4 ? 1 : 0)), ROW - 3] as const;
      ctx.fillStyle = w > 4 ? colour[`${span.kind}-fill` as const] : colour[span.kind];
      ctx.globalAlpha = span.finished ? 1 : 0.5;
      ctx.fillRect(...box);
      ctx.fillStyle = colour[span.kind];
      ctx.fillRect(box[0], box[1], Math.min(2, box[2]), box[3]);
      ctx.globalAlpha = 1;
      if (span.level === 0 && span.compilation >= 0 && span.compilation === this.compilation) {
        ctx.fillStyle = colour.accent;
        ctx.fillRect(box[0], y + ROW - 3, box[2], 2);
      }
      if (lit) {
        ctx.strokeStyle = span === this.chosen ? colour.accent : colour.text;
        ctx.lineWidth = span === this.chosen ? 2 : 1;
        ctx.strokeRect(box[0] + 0.5, box[1] + 0.5, box[2] - 1, box[3] - 1);
        ctx.lineWidth = 1;
      }
      if (w > TEXT_FROM) {
        const shown = fitted(ctx, span.name, w - 10);
        ctx.fillStyle = colour.text;
        ctx.fillText(shown, Math.max(0, x) + 5, y + ROW / 2);
      }
    }
  }

  /** A form for each kind, so that no one has to tell colours apart. */
  private paintMark(ctx: CanvasRenderingContext2D, mark: Mark, y: number, width: number, colour: Colour): void {
    const x = this.x(mark.at);
    if (x < -8 || x > width + 8) return;
    drawMark(ctx, mark.kind, x, y, colour);
    if (mark === this.hover?.mark) {
      ctx.strokeStyle = colour.text;
      ctx.strokeRect(x - 7, y - 7, 14, 14);
    }
  }
}

export function drawMark(ctx: CanvasRenderingContext2D, kind: MarkKind, x: number, y: number, colour: Colour): void {
  const mean: Record<MarkKind, string> = {
    hit: colour.hit,
    miss: colour.miss,
    bypass: colour.miss,
    restart: colour.miss,
    break: colour.failure,
    failure: colour.failure,
  };
  ctx.strokeStyle = ctx.fillStyle = mean[kind];
  ctx.lineWidth = 1.6;
  ctx.beginPath();
  if (kind === "hit" || kind === "miss") ctx.arc(x, y, 4, 0, 7);
  else if (kind === "bypass") ctx.rect(x - 5, y - 1.5, 10, 3);
  else if (kind === "restart") polygon(ctx, [x - 4, y - 5, x + 5, y, x - 4, y + 5]);
  else if (kind === "break") polygon(ctx, [x, y - 5, x + 5, y, x, y + 5, x - 5, y]);
  else {
    ctx.moveTo(x - 4, y - 4);
    ctx.lineTo(x + 4, y + 4);
    ctx.moveTo(x + 4, y - 4);
    ctx.lineTo(x - 4, y + 4);
  }
  if (kind === "miss" || kind === "failure") ctx.stroke();
  else ctx.fill();
  ctx.lineWidth = 1;
}

function polygon(ctx: CanvasRenderingContext2D, points: readonly number[]): void {
  for (let i = 0; i < points.length; i += 2) ctx.lineTo(points[i]!, points[i + 1]!);
  ctx.closePath();
}

/** How many spans begin at `us` or before. */
function firstAfter(spans: readonly Span[], us: number): number {
  let [low, high] = [0, spans.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle]!.start <= us) low = middle + 1;
    else high = middle;
  }
  return low;
}

function last<T>(list: readonly T[] | undefined): T | null {
  return list?.[list.length - 1] ?? null;
}

/** As much of a name as fits. */
function fitted(ctx: CanvasRenderingContext2D, name: string, room: number): string {
  const most = Math.floor(room / 5.2); // of the narrower letters
  if (name.length <= most && ctx.measureText(name).width <= room) return name;
  let shown = name.slice(0, most);
  while (shown && ctx.measureText(`${shown}…`).width > room) shown = shown.slice(0, -1);
  return shown.length > 1 ? `${shown}…` : "";
}

/** The canvas at this size on the page, empty. */
function laidOut(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  background: string,
): CanvasRenderingContext2D {
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  return sized(canvas, width, height, background);
}

/** The colours of the page's style (timeline.css), which follows Jupyter's theme. */
export function readColours(place: HTMLElement): Colour {
  return { ...coloursIn(place, "time", COLOURS), sans: getComputedStyle(place).fontFamily };
}
