// Caches the drawing at one scale as square bitmaps. Panning only copies bitmaps. New tiles are painted over several
// frames, the middle first; until then an overview of the whole drawing is shown in their place.

import { type Area, type Drawn, paint } from "./paint";
import type { Palette } from "./palette";

export const TILE = 512; // device pixels per side
const BUDGET_MS = 7; // of painting per frame
const AHEAD = 1; // tiles around the view that are painted when idle

interface Tile {
  readonly canvas: HTMLCanvasElement;
  readonly work: Generator<void, void>;
  done: boolean;
  used: number; // the last frame that showed it
}

/** The tiles of one scale. `zoom` is device pixels per pixel of the drawing. */
export class Tiles {
  private readonly tiles = new Map<string, Tile>();
  private frame = 0;

  constructor(
    readonly zoom: number,
    private readonly scale: number,
    private readonly drawn: Drawn,
    private readonly palette: Palette,
  ) {}

  /**
   * Paints missing tiles for a limited time; returns whether there is more to paint. `x`, `y`: the view's corner in
   * device pixels.
   */
  work(x: number, y: number, width: number, height: number, patient: boolean): boolean {
    this.frame++;
    const until = performance.now() + BUDGET_MS;
    const [left, top, right, bottom] = span(x, y, width, height);
    const wanted = this.missing(left, top, right, bottom);
    const visible = wanted.length;
    if (!visible && !patient) wanted.push(...this.missing(left - AHEAD, top - AHEAD, right + AHEAD, bottom + AHEAD));
    const [middleX, middleY] = [(left + right) / 2, (top + bottom) / 2];
    wanted.sort((a, b) => Math.hypot(a[0] - middleX, a[1] - middleY) - Math.hypot(b[0] - middleX, b[1] - middleY));
    for (const [i, j] of wanted) {
      const tile = this.at(i, j);
      while (!tile.done) {
        tile.done = tile.work.next().done === true;
        if (!patient && performance.now() > until) {
          this.forget(left, top, right, bottom);
          return true;
        }
      }
    }
    this.forget(left, top, right, bottom);
    return false;
  }

  /** Copies the painted tiles, enlarged by `ratio`. Returns whether they cover the view. */
  copy(ctx: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, ratio: number): boolean {
    const [left, top, right, bottom] = span(x / ratio, y / ratio, width / ratio, height / ratio);
    let whole = true;
    for (let j = top; j <= bottom; j++) {
      for (let i = left; i <= right; i++) {
        const tile = this.tiles.get(`${i},${j}`);
        if (!tile?.done) {
          whole &&= !this.holds(i, j);
          continue;
        }
        tile.used = this.frame;
        if (ratio === 1) ctx.drawImage(tile.canvas, i * TILE - x, j * TILE - y);
        else ctx.drawImage(tile.canvas, i * TILE * ratio - x, j * TILE * ratio - y, TILE * ratio, TILE * ratio);
      }
    }
    return whole;
  }

  /** Whether a tile contains a part of the drawing. */
  private holds(i: number, j: number): boolean {
    const { width, height } = this.drawn.scene;
    return i >= 0 && j >= 0 && i * TILE < width * this.zoom && j * TILE < height * this.zoom;
  }

  private missing(left: number, top: number, right: number, bottom: number): [number, number][] {
    const out: [number, number][] = [];
    for (let j = top; j <= bottom; j++)
      for (let i = left; i <= right; i++) if (this.holds(i, j) && !this.tiles.get(`${i},${j}`)?.done) out.push([i, j]);
    return out;
  }

  private at(i: number, j: number): Tile {
    const key = `${i},${j}`;
    let tile = this.tiles.get(key);
    if (!tile) {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = TILE;
      const ctx = canvas.getContext("2d", { alpha: false })!;
      ctx.fillStyle = this.palette.colour.background;
      ctx.fillRect(0, 0, TILE, TILE);
      ctx.setTransform(this.zoom, 0, 0, this.zoom, -i * TILE, -j * TILE);
      const side = TILE / this.zoom;
      const area: Area = { left: i * side, top: j * side, right: (i + 1) * side, bottom: (j + 1) * side };
      tile = { canvas, done: false, used: this.frame, work: paint(ctx, this.drawn, this.palette, area, this.scale) };
      this.tiles.set(key, tile);
    }
    return tile;
  }

  /** Bounds the memory: drops the tiles that were out of view for the longest time. */
  private forget(left: number, top: number, right: number, bottom: number): void {
    const most = 2 * (right - left + 1 + 2 * AHEAD) * (bottom - top + 1 + 2 * AHEAD);
    if (this.tiles.size <= most) return;
    const oldest = [...this.tiles].sort((a, b) => a[1].used - b[1].used);
    for (const [key] of oldest.slice(0, this.tiles.size - most)) this.tiles.delete(key);
  }
}

function span(x: number, y: number, width: number, height: number): [number, number, number, number] {
  return [
    Math.floor(x / TILE),
    Math.floor(y / TILE),
    Math.floor((x + width - 1) / TILE),
    Math.floor((y + height - 1) / TILE),
  ];
}
