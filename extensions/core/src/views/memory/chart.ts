// Draws the live bytes on a canvas. A column of pixels shows the moment of it at which most is alive, so a frame takes
// as long as the screen is wide, and no peak is lost.

import { h } from "../../dom";
import { bytes } from "../../format";
import { coloursIn, Frames, sized } from "../../painting";
import type { Layer } from "./layers";
import { goneAt, type Holder, type Plan } from "./plan";

const TOP = 20; // pixels: what the halves are called, and the peak
const LIFE = 14; // below the drawing: when the selected values live
const LEFT = 62; // the axis
const RIGHT = 10;
const LEAST = 4; // moments that are visible at the largest zoom
const LINES = 4; // of the axis, at most
const COLOURS = ["background", "text", "faint", "line", "accent", "peak"] as const;
export const FILLS = 10;

/** The visible moments. */
export interface Window {
  readonly from: number;
  readonly to: number;
}

interface Colours {
  readonly of: Readonly<Record<(typeof COLOURS)[number], string>>;
  readonly fills: readonly string[];
  readonly sans: string;
}

export class Chart {
  readonly canvas = h("canvas", { class: "live", tabindex: "0", role: "img" });
  private plan: Plan | null = null;
  private layers: readonly Layer[] = [];
  private fills: readonly number[] = []; // the colour of each layer
  private colours: Colours | null = null;
  private readonly frames = new Frames(this.canvas, () => this.paint());
  window: Window = { from: 0, to: 1 };
  pinned = -1; // moments
  hover = -1;
  lit: readonly Holder[] = [];

  show(plan: Plan, layers: readonly Layer[], fills: readonly number[]): void {
    if (plan.moments.length !== this.plan?.moments.length) this.window = { from: 0, to: plan.moments.length };
    [this.plan, this.layers, this.fills] = [plan, layers, fills];
    this.ask();
  }

  get whole(): Window {
    return { from: 0, to: this.plan?.moments.length ?? 1 };
  }

  move({ from, to }: Window): void {
    const { to: most } = this.whole;
    const size = Math.max(Math.min(LEAST, most), Math.min(most, to - from));
    const first = Math.max(0, Math.min(most - size, (from + to - size) / 2));
    this.window = { from: first, to: first + size };
    this.ask();
  }

  /** `factor` 2: twice as large, around a moment. */
  zoom(factor: number, at: number): void {
    const { from, to } = this.window;
    this.move({ from: at - (at - from) / factor, to: at + (to - at) / factor });
  }

  pan(share: number): void {
    const { from, to } = this.window;
    const by = Math.max(from * -1, Math.min(this.whole.to - to, share * (to - from)));
    this.move({ from: from + by, to: to + by });
  }

  /** Moves the window so that a moment is in it. */
  reveal(moment: number): void {
    const { from, to } = this.window;
    if (moment < from || moment + 1 > to)
      this.move({ from: moment + 0.5 - (to - from) / 2, to: moment + 0.5 + (to - from) / 2 });
  }

  /** The moment at a pixel, with fractions. */
  place(x: number): number {
    const { from, to } = this.window;
    return from + ((x - LEFT) / this.room) * (to - from);
  }

  /** The moment that a pixel shows, -1 beside the drawing: the largest of its column. */
  at(x: number): number {
    const { plan } = this;
    if (!plan?.moments.length || x < LEFT || x > LEFT + this.room) return -1;
    const first = Math.max(0, Math.min(plan.moments.length - 1, Math.floor(this.place(Math.floor(x)))));
    const end = Math.max(first + 1, Math.min(plan.moments.length, Math.floor(this.place(Math.floor(x) + 1))));
    return largest(plan.alive, first, end);
  }

  get room(): number {
    return Math.max(1, this.canvas.clientWidth - LEFT - RIGHT);
  }

  repaint(): void {
    this.colours = null;
    this.ask();
  }

  ask(): void {
    this.frames.ask();
  }

  destroy(): void {
    this.frames.stop();
  }

  private x(moment: number): number {
    const { from, to } = this.window;
    return LEFT + ((moment - from) / (to - from)) * this.room;
  }

  private paint(): void {
    const { plan } = this;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (!plan || !width || !height) return;
    const started = performance.now();
    const { of, fills, sans } = (this.colours ??= readColours(this.canvas));
    const ctx = sized(this.canvas, width, height, of.background);
    ctx.font = `11px ${sans}`;
    const bottom = height - LIFE - 4;
    const most = Math.max(1, plan.peak < 0 ? 1 : plan.alive[plan.peak]!);
    const y = (nbytes: number): number => bottom - (nbytes / most) * (bottom - TOP);
    this.paintAxis(ctx, most, y, of);
    this.paintLayers(ctx, y, fills);
    this.paintHalves(ctx, bottom, of);
    this.paintLives(ctx, bottom, height, of);
    if (this.lit.length > 1) this.paintTheirBytes(ctx, y, of.accent);
    this.paintMoment(ctx, this.hover, bottom, of.faint, 1);
    this.paintMoment(ctx, this.pinned, bottom, of.accent, 2);
    this.paintPeak(ctx, of);
    this.canvas.ariaBusy = "false";
    performance.measure("aotviz memory painted", { start: started }); // benchmarks and tests read it
  }

  private paintAxis(ctx: CanvasRenderingContext2D, most: number, y: (n: number) => number, of: Colours["of"]): void {
    const unit = 2 ** Math.ceil(Math.log2(most / LINES));
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    for (let nbytes = 0; nbytes <= most; nbytes += unit) {
      ctx.fillStyle = of.line;
      ctx.fillRect(LEFT, Math.round(y(nbytes)), this.room, 1);
      ctx.fillStyle = of.faint;
      ctx.fillText(bytes(nbytes).replace(/\.0+ /, " "), LEFT - 6, y(nbytes));
    }
    ctx.textAlign = "left";
  }

  /** Each layer is one shape, from the top down, so that what is below it covers the rest. */
  private paintLayers(ctx: CanvasRenderingContext2D, y: (nbytes: number) => number, fills: readonly string[]): void {
    const { from, to } = this.window;
    const { moments, alive } = this.plan!;
    const columns: [x: number, end: number, moment: number][] = [];
    const perPixel = (to - from) / this.room;
    if (perPixel <= 1)
      for (let at = Math.floor(from); at < Math.min(moments.length, Math.ceil(to)); at++)
        columns.push([Math.max(LEFT, this.x(at)), Math.min(LEFT + this.room, this.x(at + 1)), at]);
    else
      for (let x = 0; x < this.room; x++) {
        const [first, end] = [Math.floor(from + x * perPixel), Math.floor(from + (x + 1) * perPixel)];
        columns.push([
          LEFT + x,
          LEFT + x + 1,
          largest(alive, first, Math.min(moments.length, Math.max(first + 1, end))),
        ]);
      }
    const tops = columns.map(() => 0);
    const heights = this.layers.map(({ bytes: of }) => columns.map(([, , at], i) => (tops[i]! += of[at] ?? 0)));
    for (let layer = heights.length - 1; layer >= 0; layer--) {
      ctx.beginPath();
      ctx.moveTo(LEFT, y(0));
      columns.forEach(([x, end], i) => {
        const top = y(heights[layer]![i]!);
        ctx.lineTo(x, top);
        ctx.lineTo(end, top);
      });
      ctx.lineTo(columns.at(-1)?.[1] ?? LEFT, y(0));
      ctx.fillStyle = fills[this.fills[layer]!]!;
      ctx.fill();
    }
  }

  private paintHalves(ctx: CanvasRenderingContext2D, bottom: number, of: Colours["of"]): void {
    const { moments } = this.plan!;
    const peak = this.peakText(ctx);
    moments.forEach(({ phase }, at) => {
      if (at && phase === moments[at - 1]!.phase) return;
      const x = this.x(at);
      if (x > LEFT + this.room) return;
      if (at && x > LEFT) {
        ctx.strokeStyle = of.text;
        ctx.setLineDash([4, 3]);
        ctx.beginPath();
        ctx.moveTo(x, TOP - 12);
        ctx.lineTo(x, bottom);
        ctx.stroke();
        ctx.setLineDash([]);
      }
      const next = moments.findIndex((one, i) => i > at && one.phase !== phase);
      const end = Math.min(LEFT + this.room, this.x(next < 0 ? moments.length : next));
      const length = ctx.measureText(phase).width;
      let begin = Math.max(LEFT, x) + 5;
      if (peak && begin < peak.to + 4 && peak.from < begin + length) begin = peak.to + 6; // beside what the peak says
      if (begin + length > end) return;
      ctx.fillStyle = of.faint;
      ctx.textBaseline = "top";
      ctx.fillText(phase, begin, 3);
    });
  }

  /** When the selected values live: a bar below the drawing, and if it is one, lines up to it. */
  private paintLives(ctx: CanvasRenderingContext2D, bottom: number, height: number, of: Colours["of"]): void {
    ctx.fillStyle = of.line;
    ctx.fillRect(LEFT, bottom + 1, this.room, 1);
    for (const one of this.lit) {
      const from = Math.max(LEFT, this.x(one.madeAt));
      const to = Math.min(LEFT + this.room, this.x(Math.min(goneAt(one), this.plan!.moments.length)));
      if (to < LEFT || from > LEFT + this.room) continue;
      ctx.fillStyle = of.accent;
      ctx.globalAlpha = 0.16;
      if (this.lit.length === 1) ctx.fillRect(from, TOP, Math.max(2, to - from), bottom - TOP);
      ctx.globalAlpha = this.lit.length > 1 ? 0.6 : 1;
      ctx.fillRect(from, bottom + 5, Math.max(2, to - from), height - bottom - 8);
      ctx.globalAlpha = 1;
    }
  }

  /** How many of the live bytes are of the selected values, as a line over the layers. */
  private paintTheirBytes(ctx: CanvasRenderingContext2D, y: (nbytes: number) => number, colour: string): void {
    const count = this.plan!.moments.length;
    const changes = new Float64Array(count + 1);
    for (const one of this.lit) {
      changes[one.madeAt]! += one.nbytes;
      changes[Math.min(goneAt(one), count)]! -= one.nbytes;
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT, 0, this.room, y(0) + 2);
    ctx.clip();
    ctx.beginPath();
    ctx.moveTo(this.x(0), y(0));
    let total = 0;
    changes.forEach((change, at) => {
      if (!change && at < count) return;
      ctx.lineTo(this.x(at), y(total));
      ctx.lineTo(this.x(at), y((total += change)));
    });
    ctx.strokeStyle = ctx.fillStyle = colour;
    ctx.lineWidth = 2;
    ctx.stroke();
    ctx.globalAlpha = 0.35;
    ctx.fill();
    ctx.restore();
  }

  private paintMoment(
    ctx: CanvasRenderingContext2D,
    moment: number,
    bottom: number,
    colour: string,
    size: number,
  ): void {
    const x = this.x(moment + 0.5);
    if (moment < 0 || x < LEFT || x > LEFT + this.room) return;
    ctx.fillStyle = colour;
    ctx.fillRect(Math.round(x) - size / 2, TOP - 4, size, bottom - TOP + 4);
  }

  /** What is written at the peak, and where; null if the peak is not in the window. */
  private peakText(ctx: CanvasRenderingContext2D): { x: number; text: string; from: number; to: number } | null {
    const { peak, alive } = this.plan!;
    const x = this.x(peak + 0.5);
    if (peak < 0 || x < LEFT || x > LEFT + this.room) return null;
    const text = `peak ${bytes(alive[peak]!)}`;
    const length = ctx.measureText(text).width;
    const from = x - 9 - length > LEFT + 70 ? x - 9 - length : x + 9; // on the left, the first half has its name
    return { x, text, from, to: from + length };
  }

  private paintPeak(ctx: CanvasRenderingContext2D, of: Colours["of"]): void {
    const peak = this.peakText(ctx);
    if (!peak) return;
    const { x, text, from, to } = peak;
    ctx.fillStyle = of.peak;
    ctx.beginPath();
    ctx.moveTo(x, TOP);
    ctx.lineTo(x - 5, TOP - 7);
    ctx.lineTo(x + 5, TOP - 7);
    ctx.fill();
    ctx.fillStyle = of.background;
    ctx.fillRect(from - 2, TOP - 18, to - from + 4, 13);
    ctx.fillStyle = of.text;
    ctx.textBaseline = "top";
    ctx.fillText(text, from, TOP - 17);
  }
}

/** The place of the largest from `first` to before `end`; the first one, if there are several. */
function largest(of: Float64Array, first: number, end: number): number {
  let most = first;
  for (let at = first + 1; at < end; at++) if (of[at]! > of[most]!) most = at;
  return most;
}

/** The colours of memory.css, which follow the page's theme. */
export function readColours(place: HTMLElement): Colours {
  const inside = place.parentElement ?? place;
  const numbers = Array.from({ length: FILLS }, (_, i) => String(i));
  const of = coloursIn(inside, "memory", COLOURS);
  const fills = Object.values(coloursIn(inside, "memory", numbers));
  const sans = getComputedStyle(place).fontFamily;
  return { of, fills, sans };
}
