// The canvas shows a drawing through a camera. It paints sixty times a second while something moves, and not at all
// otherwise. tiles.ts supplies bitmaps; what is under the pointer is painted on top.

import { h } from "../../dom";
import type { Group } from "../../layout/hierarchy";
import type { Rectangle } from "../../layout/placed";
import { type Camera, follow, type Hand, keyMoves, LARGEST, SMALLEST } from "./camera";
import type { Hit } from "./grid";
import { type Drawn, isShown, outline, paint, trace } from "./paint";
import type { Palette } from "./palette";
import { Tiles } from "./tiles";

const GLIDE_MS = 220;
const GROW_MS = 170;
const SMALL = 500; // boxes and edges: a drawing with at most this many is painted in one frame
const ANIMATED = 420; // boxes: more are not animated
const REST_MS = 90; // after the last change of scale, until tiles are painted at the new scale
const LEAST_OPENING = 0.8; // the initial scale is at least this: names and shapes in the boxes are still whole

const PAINTED = "aotviz graph painted"; // a mark on the page's timeline: benchmarks/viewer.py waits for it

export interface Pointed {
  hit(hit: Hit | null, x: number, y: number): void;
  click(hit: Hit | null, event: MouseEvent): void;
  moved(): void; // the camera moved
  steered(zoom: number, gentle: boolean): void; // the reader moved it, and multiplied its scale by `zoom`
  fitted(): void; // the reader asked for the whole drawing
}

export class Surface {
  readonly canvas = h("canvas", { class: "drawing", tabindex: "0", role: "img" });
  readonly hand: Hand;
  private readonly ctx = this.canvas.getContext("2d", { alpha: false })!;
  private camera: Camera = { x: 0, y: 0, scale: 1 };
  private drawn: Drawn | null = null;
  private tiles: Tiles | null = null;
  private stale: Tiles | null = null;
  private overview: HTMLCanvasElement | null = null;
  private hover: Hit | null = null;
  private ring = -1; // the box at the outline's cursor
  private glide: { from: Camera; to: Camera; start: number } | null = null;
  private grow: { from: ReadonlyMap<string, Rectangle>; start: number } | null = null;
  private scaledAt = 0;
  private asked = 0;
  private fitted = false; // whether the whole drawing was in view at the last paint
  private announced = true; // whether PAINTED was marked for this drawing
  private readonly calm = matchMedia("(prefers-reduced-motion: reduce)");
  private readonly sizes: ResizeObserver;

  constructor(
    private palette: Palette,
    private readonly pointed: Pointed,
  ) {
    this.hand = {
      get: () => this.glide?.to ?? this.camera,
      set: (camera, gentle = false) => {
        const { scale } = this.hand.get();
        this.move(camera, gentle);
        this.pointed.steered(this.hand.get().scale / scale, gentle);
      },
      click: (x, y, event) => this.pointed.click(this.at(x, y), event),
      hover: (x, y) => this.point(x, y),
      fit: () => {
        this.fit();
        this.pointed.fitted();
      },
      mayWheel: () => this.mayWheel(),
    };
    this.clear(); // an opaque canvas is black until something is drawn
    follow(this.canvas, this.hand);
    this.sizes = new ResizeObserver(() => {
      const [width, height] = this.pixels();
      if (this.canvas.width !== width || this.canvas.height !== height) this.ask();
    });
    this.sizes.observe(this.canvas);
  }

  get view(): Camera & { width: number; height: number } {
    return { ...this.camera, width: this.canvas.clientWidth, height: this.canvas.clientHeight };
  }

  destroy(): void {
    this.sizes.disconnect();
    cancelAnimationFrame(this.asked);
    this.drawn = null;
  }

  /** Shows a drawing. `from`: the boxes' old places, for the animation. By default the camera stays. */
  show(drawn: Drawn, overview: HTMLCanvasElement | null, from: ReadonlyMap<string, Rectangle> | null): void {
    const same = this.drawn?.scene === drawn.scene;
    this.drawn = drawn;
    if (overview) this.overview = overview;
    this.stale = same ? this.tiles : null;
    this.tiles = null;
    if (!same) {
      this.hover = null;
      this.announced = false;
    }
    this.grow =
      from && !this.calm.matches && drawn.scene.places.length <= ANIMATED ? { from, start: performance.now() } : null;
    this.ask();
  }

  repaint(palette: Palette): void {
    this.palette = palette;
    this.tiles = this.stale = null;
    this.ask();
  }

  encircle(box: number): void {
    this.ring = box;
    this.ask();
  }

  move(camera: Camera, gentle = false): void {
    const to = this.bounded(camera);
    if (gentle && !this.calm.matches) this.glide = { from: this.camera, to, start: performance.now() };
    else {
      this.glide = null;
      this.place(to);
    }
    this.ask();
  }

  fit(gentle = true): void {
    if (!this.drawn) return;
    const { width, height } = this.drawn.scene;
    const scale = Math.min(1.2, this.canvas.clientWidth / width, this.canvas.clientHeight / height);
    this.move(
      {
        scale,
        x: width / 2 - this.canvas.clientWidth / 2 / scale,
        y: height / 2 - this.canvas.clientHeight / 2 / scale,
      },
      gentle,
    );
  }

  /** Shows the whole drawing if it is readable at that scale, else its top, else its top left corner. */
  begin(): void {
    if (!this.drawn) return;
    const { width, height } = this.drawn.scene;
    const [w, hh] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const scale = Math.min(1, Math.max(LEAST_OPENING, Math.min(w / width, hh / height)));
    this.move({
      scale,
      x: width * scale <= w ? width / 2 - w / 2 / scale : 0,
      y: height * scale <= hh ? height / 2 - hh / 2 / scale : 0,
    });
  }

  /** Whether the whole drawing is in view. */
  get whole(): boolean {
    if (!this.drawn) return false;
    const { x, y, scale, width, height } = this.view;
    return (
      x <= 0 && y <= 0 && x + width / scale >= this.drawn.scene.width && y + height / scale >= this.drawn.scene.height
    );
  }

  /** Shows the whole drawing if it is readable at that scale; returns whether it is. */
  keepWhole(): boolean {
    const { width, height } = this.drawn!.scene;
    const readable = Math.min(this.canvas.clientWidth / width, this.canvas.clientHeight / height) >= LEAST_OPENING;
    if (readable) this.fit();
    return readable;
  }

  /** Scrolls a place into view if it is not visible. */
  reveal(place: Rectangle, gentle = true, readable = true): void {
    const { width, height } = this.view;
    const now = this.hand.get();
    const scale = readable && now.scale < LEAST_OPENING ? LEAST_OPENING : now.scale;
    const inside =
      scale === now.scale &&
      place.x >= now.x &&
      place.x + place.width <= now.x + width / scale &&
      place.y >= now.y &&
      place.y + place.height <= now.y + height / scale;
    if (inside) return;
    const tall = place.height * scale > height * 0.8;
    const wide = place.width * scale > width * 0.9;
    this.move(
      {
        scale,
        x: wide ? place.x - 20 / scale : place.x + place.width / 2 - width / 2 / scale,
        y: tall ? place.y - 24 / scale : place.y + place.height / 2 - height / 2 / scale,
      },
      gentle,
    );
  }

  /** Moves the camera without animation, so that one place of the drawing appears where another was. */
  anchor(before: { x: number; y: number }, after: { x: number; y: number }): void {
    this.glide = null;
    this.place(
      this.bounded({ ...this.camera, x: this.camera.x + after.x - before.x, y: this.camera.y + after.y - before.y }),
    );
  }

  key(key: string): boolean {
    return keyMoves(key, this.canvas, this.hand, false);
  }

  private place(camera: Camera): void {
    if (camera.scale !== this.camera.scale) this.scaledAt = performance.now();
    this.camera = camera;
    this.pointed.moved();
  }

  /** Limits a camera so that a part of the drawing stays in view. */
  private bounded({ x, y, scale }: Camera): Camera {
    if (!this.drawn || !Number.isFinite(x + y + scale)) return this.camera;
    const { width, height } = this.drawn.scene;
    const kept = Math.max(SMALLEST, Math.min(LARGEST, scale));
    const [w, hh] = [this.canvas.clientWidth / kept, this.canvas.clientHeight / kept];
    const within = (v: number, size: number, room: number): number =>
      Math.max(-0.8 * room, Math.min(size - 0.2 * room, v));
    return { scale: kept, x: within(x, width, w), y: within(y, height, hh) };
  }

  private at(x: number, y: number): Hit | null {
    const { drawn, camera } = this;
    if (!drawn || Number.isNaN(x)) return null;
    return drawn.grid.hit(camera.x + x / camera.scale, camera.y + y / camera.scale, camera.scale, (route) =>
      isShown(drawn, route),
    );
  }

  private point(x: number, y: number): void {
    const hit = this.at(x, y);
    this.pointed.hit(hit, x, y);
    if (JSON.stringify(hit) === JSON.stringify(this.hover)) return;
    this.hover = hit;
    this.canvas.classList.toggle("pointing", hit !== null && hit.kind !== "edge");
    this.ask();
  }

  /** The wheel scrolls the page, until the reader clicks in the canvas or unless the page cannot scroll. */
  private mayWheel(): boolean {
    const root = this.canvas.getRootNode() as Document | ShadowRoot;
    if (root.activeElement && this.canvas.parentElement?.parentElement?.contains(root.activeElement)) return true;
    let at: Node | null = this.canvas;
    while (at) {
      if (
        at instanceof HTMLElement &&
        at.scrollHeight > at.clientHeight + 1 &&
        /auto|scroll/.test(getComputedStyle(at).overflowY)
      )
        return false;
      at = at instanceof ShadowRoot ? at.host : at.parentNode;
    }
    const page = document.scrollingElement;
    return !page || page.scrollHeight <= page.clientHeight + 1;
  }

  private ask(): void {
    if (this.asked) return;
    this.asked = requestAnimationFrame((now) => this.frame(now));
    this.canvas.ariaBusy = "true";
  }

  /** The size that the canvas should have. */
  private pixels(): [width: number, height: number] {
    const ratio = devicePixelRatio || 1;
    return [Math.round(this.canvas.clientWidth * ratio), Math.round(this.canvas.clientHeight * ratio)];
  }

  /** Paints, and continues in the next frame if there is more. The canvas is busy until the last frame. */
  private frame(now: number): void {
    this.asked = 0;
    this.canvas.ariaBusy = "false";
    const { drawn, canvas, ctx } = this;
    const ratio = devicePixelRatio || 1;
    const [width, height] = this.pixels();
    if (!drawn || !width || !height) return;
    if (canvas.width !== width || canvas.height !== height) {
      [canvas.width, canvas.height] = [width, height];
      if (this.fitted) this.keepWhole();
    }
    if (this.glide) {
      const t = Math.min(1, (now - this.glide.start) / GLIDE_MS);
      const { from, to } = this.glide;
      if (t >= 1) this.glide = null;
      this.place(between(from, to, ease(t), canvas.clientWidth, canvas.clientHeight));
    }
    let more = this.glide !== null;
    // The first paint of a small drawing is faster without tiles; the next requested frame has them.
    const first = !this.announced && !this.tiles && isSmall(drawn);
    const growing = this.grow ? (now - this.grow.start) / GROW_MS : 1;
    if (growing >= 1) this.grow = null;
    if (this.grow) {
      this.paintGrowing(drawn, this.grow.from, ease(Math.max(0, growing)), ratio);
      more = true;
    } else if (first) this.paintAtOnce(drawn, ratio);
    else more = this.paintTiles(drawn, ratio, now) || more;
    const zoom = this.camera.scale * ratio;
    ctx.setTransform(zoom, 0, 0, zoom, -Math.round(this.camera.x * zoom), -Math.round(this.camera.y * zoom));
    this.paintPointer(drawn);
    this.fitted = this.whole;
    if (more) this.ask();
    else if (!this.announced) {
      this.announced = true;
      performance.mark(PAINTED);
    }
  }

  private paintAtOnce(drawn: Drawn, ratio: number): void {
    const { ctx, canvas, camera, palette } = this;
    const zoom = camera.scale * ratio;
    const [x, y] = [Math.round(camera.x * zoom), Math.round(camera.y * zoom)];
    this.clear();
    ctx.setTransform(zoom, 0, 0, zoom, -x, -y);
    const view = {
      left: x / zoom,
      top: y / zoom,
      right: (x + canvas.width) / zoom,
      bottom: (y + canvas.height) / zoom,
    };
    for (const _ of paint(ctx, drawn, palette, view, camera.scale)) void _;
  }

  private clear(): void {
    const { ctx, canvas } = this;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.globalAlpha = 1;
    ctx.setLineDash([]);
    ctx.fillStyle = this.palette.colour.background;
    ctx.fillRect(0, 0, canvas.width, canvas.height);
  }

  private paintTiles(drawn: Drawn, ratio: number, now: number): boolean {
    const { ctx, canvas, camera } = this;
    const zoom = camera.scale * ratio;
    const [x, y] = [Math.round(camera.x * zoom), Math.round(camera.y * zoom)];
    const small = isSmall(drawn);
    const resting = small || now - this.scaledAt > REST_MS;
    if (!this.tiles || (this.tiles.zoom !== zoom && resting)) {
      this.stale = this.tiles ?? this.stale;
      this.tiles = new Tiles(zoom, camera.scale, drawn, this.palette);
    }
    let more = !resting;
    if (this.tiles.zoom === zoom) more = this.tiles.work(x, y, canvas.width, canvas.height, small) || more;
    this.clear();
    const { width, height } = drawn.scene;
    const covered = this.tiles.zoom === zoom && !more;
    if (!covered) {
      if (this.overview) ctx.drawImage(this.overview, -x, -y, width * zoom, height * zoom);
      this.stale?.copy(ctx, x, y, canvas.width, canvas.height, zoom / this.stale.zoom);
    }
    const whole = this.tiles.copy(ctx, x, y, canvas.width, canvas.height, zoom / this.tiles.zoom);
    if (whole && this.tiles.zoom === zoom) this.stale = null;
    return more || !whole;
  }

  /** Animates boxes from their old places. Edges appear towards the end. */
  private paintGrowing(drawn: Drawn, from: ReadonlyMap<string, Rectangle>, t: number, ratio: number): void {
    const { ctx, camera, palette } = this;
    const zoom = camera.scale * ratio;
    this.clear();
    ctx.setTransform(zoom, 0, 0, zoom, -Math.round(camera.x * zoom), -Math.round(camera.y * zoom));
    const { scene } = drawn;
    const moved = <P extends Rectangle>(place: P, id: string, around: Group | null): P => {
      const start = origin(from, id, around);
      return start ? { ...place, x: start.x + t * (place.x - start.x), y: start.y + t * (place.y - start.y) } : place;
    };
    const places = scene.places.map((place, i) =>
      moved(place, scene.picture.boxes[i]!.id, scene.picture.boxes[i]!.parent),
    );
    const clusters = scene.clusters.map((cluster) => moved(cluster, cluster.group.id, cluster.group.parent));
    const all = { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity };
    const everything = { boxes: places.map((_, i) => i), routes: t < 0.6 ? [] : scene.routes.map((_, i) => i) };
    const grid = { within: () => everything } as unknown as Drawn["grid"];
    for (const _ of paint(ctx, { ...drawn, scene: { ...scene, places, clusters }, grid }, palette, all, camera.scale))
      void _;
  }

  private paintPointer(drawn: Drawn): void {
    const { ctx, hover, palette, camera } = this;
    ctx.globalAlpha = 1;
    if (this.ring >= 0 && this.ring < drawn.scene.places.length && !this.grow) {
      ctx.setLineDash([4 / camera.scale, 3 / camera.scale]);
      outline(ctx, drawn.scene, this.ring, palette.colour.accent, 2 / camera.scale);
      ctx.setLineDash([]);
    }
    if (!hover || this.grow) return;
    ctx.strokeStyle = palette.colour.accent;
    ctx.lineWidth = Math.max(1.5, 1.2 / camera.scale);
    ctx.beginPath();
    if (hover.kind === "edge") trace(ctx, drawn.scene.routes[hover.route]!.points, camera.scale);
    else if (hover.kind === "box") {
      for (const index of drawn.touching(hover.box)) {
        const route = drawn.scene.routes[index]!;
        if (route.kind !== "alias" || drawn.aliases) trace(ctx, route.points, camera.scale);
      }
    }
    ctx.stroke();
    if (hover.kind === "box")
      outline(ctx, drawn.scene, hover.box, palette.colour.accent, 2 / Math.min(1, camera.scale));
  }
}

function isSmall({ scene }: Drawn): boolean {
  return scene.places.length + scene.routes.length <= SMALL;
}

/** The old place of a box, or of the nearest group around it that was drawn. */
function origin(from: ReadonlyMap<string, Rectangle>, id: string, around: Group | null): Rectangle | undefined {
  let found = from.get(id);
  for (let at = around; !found && at; at = at.parent) found = from.get(at.id);
  return found;
}

function ease(t: number): number {
  return 1 - (1 - t) ** 3;
}

/** Interpolates between two cameras: the scale geometrically, and so that what both show does not move. */
function between(from: Camera, to: Camera, t: number, width: number, height: number): Camera {
  if (t >= 1) return to;
  const scale = from.scale * (to.scale / from.scale) ** t;
  const middle = (camera: Camera): [number, number] => [
    camera.x + width / 2 / camera.scale,
    camera.y + height / 2 / camera.scale,
  ];
  const [[ax, ay], [bx, by]] = [middle(from), middle(to)];
  return { scale, x: ax + t * (bx - ax) - width / 2 / scale, y: ay + t * (by - ay) - height / 2 / scale };
}
