// From times to pixels: folded gaps, zoom, and the ticks of the axis.

import { FOLDED_SHARE, type Gap, type Lanes } from "./lanes";

export const SMALLEST_US = 2; // microseconds that are visible at the largest zoom

/** The visible part, in folded microseconds. */
export interface Window {
  readonly from: number;
  readonly to: number;
}

export class Scale {
  readonly length: number; // folded
  private readonly folds: readonly (Gap & { readonly saved: number; readonly before: number })[];

  constructor({ length, gaps }: Lanes) {
    const idle = gaps.reduce((sum, { start, end }) => sum + end - start, 0);
    const width = FOLDED_SHARE * Math.max(1, length - idle);
    let before = 0;
    this.folds = gaps.map((gap) => {
      const saved = Math.max(0, gap.end - gap.start - width);
      const fold = { ...gap, saved, before };
      before += saved;
      return fold;
    });
    this.length = Math.max(1, length - before);
  }

  /** The place of a time, with gaps folded. */
  fold(us: number): number {
    let at = us;
    for (const { start, end, saved, before } of this.folds) {
      if (us <= start) break;
      if (us < end) return start - before + ((us - start) / (end - start)) * (end - start - saved);
      at = us - before - saved;
    }
    return at;
  }

  /** The time of a place. */
  unfold(at: number): number {
    let us = at;
    for (const { start, end, saved, before } of this.folds) {
      const begins = start - before;
      if (at <= begins) break;
      const width = end - start - saved;
      if (at < begins + width) return start + ((at - begins) / width) * (end - start);
      us = at + before + saved;
    }
    return us;
  }

  bounded({ from, to }: Window): Window {
    const size = Math.max(SMALLEST_US, Math.min(this.length * 1.04, to - from));
    const middle = (from + to) / 2;
    const margin = this.length * 0.02;
    const first = Math.max(-margin, Math.min(this.length + margin - size, middle - size / 2));
    return { from: first, to: first + size };
  }

  whole(): Window {
    return { from: -0.02 * this.length, to: 1.02 * this.length };
  }
}

/** The window after a zoom by `factor` (2: twice as large) around the place `at`. */
export function zoomed({ from, to }: Window, factor: number, at: number): Window {
  return { from: at - (at - from) / factor, to: at + (to - at) / factor };
}

/** Round times in a window, at least `room` of it apart. */
export function ticks(from: number, to: number, count: number): number[] {
  const least = (to - from) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((n) => n * power).find((size) => size >= least)!;
  const found = [];
  for (let i = Math.ceil(from / step); i * step <= to; i++) found.push(i * step + 0); // not -0
  return found;
}

/** `0`, `12.5 ms`, `3.20 s`, `2 min 5 s`, `1 h 12 min`: a time since the beginning. `step` says how exact it must be. */
export function time(us: number, step = us / 1000): string {
  if (Math.abs(us) < 1e-6) return "0";
  const exact = (unit: number): number =>
    Math.max(0, Math.min(3, Math.ceil(-Math.log10(Math.abs(step) / unit + 1e-12))));
  if (Math.abs(us) < 1e3) return `${us.toFixed(exact(1))} µs`;
  if (Math.abs(us) < 1e6) return `${(us / 1e3).toFixed(exact(1e3))} ms`;
  const seconds = us / 1e6;
  if (seconds < 120) return `${seconds.toFixed(exact(1e6))} s`;
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  if (hours) return `${hours} h ${minutes} min`;
  return `${minutes} min ${(seconds % 60).toFixed(exact(1e6))} s`;
}
