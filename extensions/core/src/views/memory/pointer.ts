// The pointer on the drawing of live bytes: drag pans, the wheel zooms, a click chooses a moment.

import type { Chart } from "./chart";

const DRAG = 4; // pixels until a press becomes a drag

interface Pointed {
  hover(moment: number): void;
  click(moment: number): void;
}

/** Returns a function that stops it. */
export function follow(chart: Chart, pointed: Pointed): () => void {
  const { canvas } = chart;
  const local = ({ clientX }: MouseEvent): number => clientX - canvas.getBoundingClientRect().left;
  const pointers = new Map<number, number>(); // x of each, for two fingers
  let from: { x: number; at: Chart["window"]; moved: boolean } | null = null;
  let apart = 0; // of two fingers
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, local(event));
    from = { x: local(event), at: chart.window, moved: false };
    apart = pointers.size === 2 ? distance(pointers) : 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const x = local(event);
    if (!pointers.has(event.pointerId)) return pointed.hover(chart.at(x));
    pointers.set(event.pointerId, x);
    if (!from) return;
    if (apart && pointers.size === 2) {
      const [a, b] = [...pointers.values()] as [number, number];
      chart.zoom(Math.max(1, distance(pointers)) / apart, chart.place((a + b) / 2));
      apart = Math.max(1, distance(pointers));
      from.moved = true;
      return;
    }
    from.moved ||= Math.abs(x - from.x) > DRAG;
    if (!from.moved) return;
    canvas.classList.add("dragging");
    const moved = ((from.x - x) / chart.room) * (from.at.to - from.at.from);
    chart.move({ from: from.at.from + moved, to: from.at.to + moved });
  });
  const end = (event: PointerEvent): void => {
    pointers.delete(event.pointerId);
    canvas.classList.remove("dragging");
    if (from && !from.moved && event.type === "pointerup") pointed.click(chart.at(local(event)));
    if (!pointers.size) from = null;
    apart = 0;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => pointed.hover(-1));
  // Ctrl and the wheel zoom; so does the wheel alone once the canvas has the focus.
  const wheel = (event: WheelEvent): void => {
    const focused = (canvas.getRootNode() as ShadowRoot | Document).activeElement === canvas;
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !sideways && !focused) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 400 : 1;
    if (sideways && !event.ctrlKey) return chart.pan(((event.deltaX || event.deltaY) * unit) / chart.room);
    const delta = Math.max(-240, Math.min(240, event.deltaY * unit));
    chart.zoom(Math.exp(-delta / 220), chart.place(local(event)));
  };
  canvas.addEventListener("wheel", wheel, { passive: false });
  return () => canvas.removeEventListener("wheel", wheel);
}

function distance(pointers: ReadonlyMap<number, number>): number {
  const [a, b] = [...pointers.values()] as [number, number];
  return Math.abs(a - b);
}
