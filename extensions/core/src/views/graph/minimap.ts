// Shows the whole drawing in a corner, with a frame around the visible part. A click or a drag goes there. The canvas
// also shows this picture where no sharper tile is painted yet.

import { h } from "../../dom";
import type { Camera } from "./camera";
import type { Drawn } from "./paint";
import type { Palette } from "./palette";

const LARGEST = 1400; // pixels of the overview per side
const MOST_SEEN = 0.6; // share of the drawing: if more is visible, no minimap is shown
const [WIDE, HIGH] = [120, 104]; // pixels of the minimap

/** All boxes as plain rectangles. */
export function overviewOf({ scene, colouring }: Drawn, palette: Palette): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  const zoom = Math.min(1, LARGEST / scene.width, LARGEST / scene.height);
  canvas.width = Math.max(1, Math.round(scene.width * zoom));
  canvas.height = Math.max(1, Math.round(scene.height * zoom));
  const ctx = canvas.getContext("2d", { alpha: false })!;
  ctx.fillStyle = palette.colour.background;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.scale(canvas.width / scene.width, canvas.height / scene.height);
  for (const { group, x, y, width, height } of scene.clusters) {
    ctx.fillStyle = palette.colour[`${group.lane}-open`];
    ctx.fillRect(x, y, width, height);
  }
  const least = 1 / zoom;
  scene.places.forEach(({ x, y, width, height }, i) => {
    const tint = colouring.tints[i];
    const plain = colouring.by === "direction" ? (`${scene.picture.boxes[i]!.lane}-far` as const) : "neutral";
    ctx.fillStyle = tint ? (colouring.ramp ? palette.ramp : palette.category)[tint.colour]! : palette.colour[plain];
    ctx.fillRect(x, y, Math.max(width, least), Math.max(height, least));
  });
  return canvas;
}

export interface Minimap {
  readonly element: HTMLElement;
  show(overview: HTMLCanvasElement, width: number, height: number): void;
  frame(view: Camera & { width: number; height: number }): void;
}

/** `go` is called with the point of the drawing that should be in the middle of the view. */
export function minimap(go: (x: number, y: number) => void): Minimap {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const frame = h("div", { class: "frame", "aria-hidden": "true" });
  const element = h("div", { class: "minimap", hidden: true }, canvas, frame);
  let scale = 1; // pixels of the minimap per pixel of the drawing
  let drawn = { width: 1, height: 1 };
  const jump = (event: PointerEvent): void => {
    const box = canvas.getBoundingClientRect();
    go(((event.clientX - box.left) / box.width) * drawn.width, ((event.clientY - box.top) / box.height) * drawn.height);
  };
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    jump(event);
  });
  element.addEventListener("pointermove", (event) => event.buttons & 1 && jump(event));
  return {
    element,
    show(overview, width, height) {
      drawn = { width, height };
      scale = Math.min(WIDE / width, HIGH / height);
      const ratio = devicePixelRatio || 1;
      const [w, hh] = [Math.max(6, width * scale), Math.max(6, height * scale)];
      canvas.style.width = `${w}px`;
      canvas.style.height = `${hh}px`;
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(hh * ratio);
      canvas.getContext("2d", { alpha: false })!.drawImage(overview, 0, 0, canvas.width, canvas.height);
    },
    frame({ x, y, scale: zoom, width, height }) {
      const [w, hh] = [width / zoom, height / zoom];
      const [left, top] = [Math.max(0, x), Math.max(0, y)];
      const seen = Math.max(0, Math.min(drawn.width, x + w) - left) * Math.max(0, Math.min(drawn.height, y + hh) - top);
      element.hidden = seen > MOST_SEEN * drawn.width * drawn.height;
      frame.style.left = `${left * scale}px`;
      frame.style.top = `${top * scale}px`;
      frame.style.width = `${Math.max(3, (Math.min(drawn.width, x + w) - left) * scale)}px`;
      frame.style.height = `${Math.max(3, (Math.min(drawn.height, y + hh) - top) * scale)}px`;
    },
  };
}
