// What canvases of views share: at most one painting a frame, the size of the screen's pixels, the page's colours.

import { h } from "./dom";

/** Paints a canvas at the next frame, however often it is asked to until then. */
export class Frames {
  private asked = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly paint: () => void,
  ) {}

  ask(): void {
    if (this.asked) return;
    this.canvas.ariaBusy = "true";
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.paint();
    });
  }

  stop(): void {
    cancelAnimationFrame(this.asked);
  }
}

/** The canvas at the size of the screen's pixels, filled with the background. */
export function sized(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  background: string,
): CanvasRenderingContext2D {
  const ratio = devicePixelRatio || 1;
  const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== tall) [canvas.width, canvas.height] = [wide, tall];
  const ctx = canvas.getContext("2d", { alpha: false })!;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.fillStyle = background;
  ctx.fillRect(0, 0, width, height);
  return ctx;
}

/** The colours that a style sheet names `--prefix-name` inside of an element. They follow the page's theme. */
export function coloursIn<Name extends string>(
  place: HTMLElement,
  prefix: string,
  names: readonly Name[],
): Record<Name, string> {
  const probe = h("span");
  place.append(probe);
  const entries = names.map((name) => {
    probe.style.color = `var(--${prefix}-${name})`;
    return [name, getComputedStyle(probe).color] as const;
  });
  probe.remove();
  return Object.fromEntries(entries) as Record<Name, string>;
}
