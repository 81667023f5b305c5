// The visible part of the drawing, and the input that moves it: dragging, the wheel, two fingers and keys.

export interface Camera {
  readonly x: number; // the point of the drawing at the view's top left corner
  readonly y: number;
  readonly scale: number; // pixels of the page per pixel of the drawing
}

export const SMALLEST = 0.004;
export const LARGEST = 4;
const DRAG = 4; // pixels until a press becomes a drag
const STEP = 60; // pixels that an arrow key moves

/** The camera with another scale; the point at (atX, atY) of the view does not move. */
export function zoomed(camera: Camera, factor: number, atX: number, atY: number): Camera {
  const scale = Math.max(SMALLEST, Math.min(LARGEST, camera.scale * factor));
  return { scale, x: camera.x + atX / camera.scale - atX / scale, y: camera.y + atY / camera.scale - atY / scale };
}

export interface Hand {
  get(): Camera;
  /** `gentle`: animate the move. */
  set(camera: Camera, gentle?: boolean): void;
  click(x: number, y: number, event: MouseEvent): void;
  hover(x: number, y: number): void; // NaN: the pointer left
  fit(): void;
  mayWheel(): boolean; // else the wheel scrolls the page
}

/** Listens to a canvas's pointers, wheel and keys. */
export function follow(canvas: HTMLCanvasElement, hand: Hand): void {
  const pointers = new Map<number, { x: number; y: number }>();
  let from: { x: number; y: number; camera: Camera; moved: boolean } | null = null;
  let pinch: { distance: number; camera: Camera; x: number; y: number } | null = null;
  const local = (event: MouseEvent): { x: number; y: number } => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const at = local(event);
    pointers.set(event.pointerId, at);
    from = { ...at, camera: hand.get(), moved: false };
    pinch = null;
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()] as [{ x: number; y: number }, { x: number; y: number }];
      pinch = {
        distance: Math.hypot(a.x - b.x, a.y - b.y) || 1,
        camera: hand.get(),
        x: (a.x + b.x) / 2,
        y: (a.y + b.y) / 2,
      };
    }
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = local(event);
    if (!pointers.has(event.pointerId)) return hand.hover(at.x, at.y);
    pointers.set(event.pointerId, at);
    if (pinch && pointers.size === 2) {
      const [a, b] = [...pointers.values()] as [{ x: number; y: number }, { x: number; y: number }];
      const next = zoomed(pinch.camera, Math.hypot(a.x - b.x, a.y - b.y) / pinch.distance, pinch.x, pinch.y);
      hand.set({
        ...next,
        x: next.x - ((a.x + b.x) / 2 - pinch.x) / next.scale,
        y: next.y - ((a.y + b.y) / 2 - pinch.y) / next.scale,
      });
      if (from) from.moved = true;
    } else if (from) {
      const [dx, dy] = [at.x - from.x, at.y - from.y];
      from.moved ||= Math.hypot(dx, dy) > DRAG;
      if (!from.moved) return;
      canvas.classList.add("dragging");
      hand.set({
        scale: from.camera.scale,
        x: from.camera.x - dx / from.camera.scale,
        y: from.camera.y - dy / from.camera.scale,
      });
    }
  });
  const end = (event: PointerEvent): void => {
    pointers.delete(event.pointerId);
    canvas.classList.remove("dragging");
    if (from && !from.moved && event.type === "pointerup") hand.click(from.x, from.y, event);
    from = null;
    pinch = null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => hand.hover(NaN, NaN));
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && !hand.mayWheel()) return;
      event.preventDefault();
      const camera = hand.get();
      const unit = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 400 : 1;
      const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
      const at = local(event);
      if (event.shiftKey || (!event.ctrlKey && Math.abs(dx) > Math.abs(dy))) {
        hand.set({ ...camera, x: camera.x + (dx || dy) / camera.scale, y: camera.y + (dx && dy) / camera.scale });
      } else {
        hand.set(
          zoomed(camera, Math.exp(-Math.max(-240, Math.min(240, dy)) / (event.ctrlKey ? 110 : 420)), at.x, at.y),
        );
      }
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    if (keyMoves(event.key, canvas, hand)) event.preventDefault();
  });
}

/** Applies a key to the camera; returns false if the key does nothing. The outline uses it too, for + - 0. */
export function keyMoves(
  key: string,
  canvas: HTMLCanvasElement,
  hand: Pick<Hand, "get" | "set" | "fit">,
  arrows = true,
): boolean {
  const camera = hand.get();
  const arrow = arrows
    ? { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key]
    : undefined;
  if (arrow)
    hand.set({
      ...camera,
      x: camera.x + (STEP * arrow[0]!) / camera.scale,
      y: camera.y + (STEP * arrow[1]!) / camera.scale,
    });
  else if (key === "+" || key === "=")
    hand.set(zoomed(camera, 1.25, canvas.clientWidth / 2, canvas.clientHeight / 2), true);
  else if (key === "-") hand.set(zoomed(camera, 0.8, canvas.clientWidth / 2, canvas.clientHeight / 2), true);
  else if (key === "0") hand.fit();
  else return false;
  return true;
}
