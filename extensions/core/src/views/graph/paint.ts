// Paints a part of a drawing on a canvas. The level of detail depends on the scale: unreadable text is not painted.
// Painting is a generator that pauses often, so that a part with thousands of boxes never delays a frame.

import type { Box } from "../../layout/picture";
import { type Rectangle, TITLE } from "../../layout/placed";
import type { Colouring } from "./colouring";
import type { Grid } from "./grid";
import { clip, type Label } from "./labels";
import type { ColourName, Palette } from "./palette";
import { type Cluster, openTitle, type Route, type Scene } from "./scene";

/** What is painted besides the boxes themselves. */
export interface Emphasis {
  readonly selected: number; // box, or -1
  readonly inputs: ReadonlySet<number>; // boxes
  readonly users: ReadonlySet<number>; // boxes
  readonly routes: ReadonlyMap<number, "inputs" | "users">;
  readonly others: "plain" | "dim"; // how to paint what is not emphasised
}

export interface Drawn {
  readonly scene: Scene;
  readonly grid: Grid;
  readonly labels: readonly Label[];
  readonly colouring: Colouring;
  readonly aliases: boolean;
  readonly emphasis: Emphasis;
  readonly found: ReadonlySet<number>; // boxes with search results, or with some of several selected nodes
  touching(box: number): readonly number[]; // routes that begin or end there
}

export const NOTHING: Emphasis = {
  selected: -1,
  inputs: new Set(),
  users: new Set(),
  routes: new Map(),
  others: "plain",
};

export const FAR = 0.24; // below this scale boxes are plain rectangles
export const READ = 0.42; // above this scale boxes have text
const LEAST_TEXT = 10; // pixels of the page: smaller text is left out, first the second line of a box, then its last letters
const LETTER = 0.604; // of a font's size: the width of a letter in monospace
const ARROWS = 0.4;
const BATCH = 150; // lines per stroke: a path with more is slow to rasterise
const PAUSE = 350; // primitives painted between two pauses
const LONG = 900; // pixels of a straight edge that passes other boxes: drawn paler, or many would hide what they pass
const FAINT = 0.22; // opacity of dimmed parts
export const FONT = 11.5;
const DETAIL_FONT = 10.3;

export interface Area {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

export function levelOf(scale: number): "far" | "middle" | "near" {
  return scale < FAR ? "far" : scale < READ ? "middle" : "near";
}

/** The context's transform maps the drawing's coordinates to the canvas. */
export function* paint(
  ctx: CanvasRenderingContext2D,
  drawn: Drawn,
  palette: Palette,
  area: Area,
  scale: number,
): Generator<void, void> {
  const { scene, grid, emphasis } = drawn;
  const found = grid.within(area.left, area.top, area.right, area.bottom);
  const inArea = (place: { x: number; y: number; width: number; height: number }): boolean =>
    place.x <= area.right &&
    place.x + place.width >= area.left &&
    place.y <= area.bottom &&
    place.y + place.height >= area.top;
  const clusters = scene.clusters.filter(inArea);
  for (const cluster of clusters) paintCluster(ctx, cluster, palette, scale);
  if (scale >= FAR)
    for (const { lane, x, y } of scene.headings)
      text(
        ctx,
        lane === "forward" ? "forward ↓" : "backward ↑",
        x,
        y,
        palette.colour[lane],
        `600 ${Math.max(12, LEAST_TEXT / scale)}px ${palette.sans}`,
        "center",
      );
  const shown = found.routes.filter((i) => isShown(drawn, i));
  yield* paintRoutes(
    ctx,
    drawn,
    shown.filter((i) => !emphasis.routes.has(i)),
    palette,
    scale,
  );
  yield* paintRoutes(
    ctx,
    drawn,
    shown.filter((i) => emphasis.routes.has(i)),
    palette,
    scale,
  );
  for (const cluster of clusters) paintTitle(ctx, cluster, palette, scale, area);
  let painted = 0;
  for (const box of found.boxes) {
    paintBox(ctx, drawn, box, palette, scale);
    if (++painted % (scale < FAR ? PAUSE : 60) === 0) yield;
  }
  ctx.globalAlpha = 1;
}

/** Whether an edge is drawn. */
export function isShown(drawn: Drawn, route: number): boolean {
  const { kind } = drawn.scene.routes[route]!;
  return drawn.emphasis.routes.has(route) || (kind === "alias" ? drawn.aliases : kind !== "quiet");
}

function paintCluster(
  ctx: CanvasRenderingContext2D,
  { group, x, y, width, height }: Cluster,
  { colour }: Palette,
  scale: number,
): void {
  rounded(ctx, x, y, width, height, 8);
  ctx.fillStyle = colour[`${group.lane}-open`];
  ctx.fill();
  ctx.strokeStyle = colour.line;
  ctx.lineWidth = Math.max(1, 0.6 / scale);
  ctx.stroke();
}

/** Titles keep a readable size on the screen while they fit in their group. */
function paintTitle(
  ctx: CanvasRenderingContext2D,
  { group, x, y, width, height }: Cluster,
  palette: Palette,
  scale: number,
  area: Area,
): void {
  const size = Math.max(FONT, LEAST_TEXT / scale);
  const letters = Math.floor((width - 14) / (0.61 * size));
  if (letters < 4 || height < 2 * size) return;
  const title = openTitle(group);
  const shown = title.length > letters ? `${title.slice(0, letters - 1)}…` : title;
  if (y > area.bottom || y + size + TITLE < area.top) return;
  ctx.lineWidth = size / 4;
  ctx.strokeStyle = palette.colour.background;
  ctx.lineJoin = "round";
  ctx.font = `600 ${size}px ${palette.mono}`;
  ctx.textAlign = "left";
  const baseline = y + Math.max(17, 1.25 * size);
  ctx.strokeText(shown, x + 9, baseline);
  text(ctx, shown, x + 9, baseline, palette.colour.text, `600 ${size}px ${palette.mono}`, "left");
}

type Role = Route["kind"] | "long" | "inputs" | "users";

function* paintRoutes(
  ctx: CanvasRenderingContext2D,
  drawn: Drawn,
  shown: readonly number[],
  palette: Palette,
  scale: number,
): Generator<void, void> {
  const { routes } = drawn.scene;
  const { emphasis } = drawn;
  const styles = new Map<string, number[]>();
  for (const i of shown) {
    const { kind, top, bottom } = routes[i]!;
    const role =
      emphasis.routes.get(i) ??
      (kind === "inside" && bottom - top > LONG && routes[i]!.points.length === 4 ? "long" : kind);
    const width = scale < FAR || kind === "alias" ? 0 : Math.min(4, Math.floor(Math.log2(routes[i]!.count)));
    const key = `${role} ${width}`;
    const list = styles.get(key);
    if (list) list.push(i);
    else styles.set(key, [i]);
  }
  let painted = 0;
  for (const [key, list] of styles) {
    const [role, width] = key.split(" ") as [Role, string];
    const strong = role === "inputs" || role === "users";
    ctx.strokeStyle = ctx.fillStyle =
      palette.colour[
        (
          {
            inside: "edge",
            long: "edge",
            across: "across",
            quiet: "edge",
            alias: "alias",
            inputs: "inputs",
            users: "users",
          } as const
        )[role]
      ];
    ctx.globalAlpha = strong
      ? 1
      : emphasis.routes.size || emphasis.others === "dim" || role === "long"
        ? 0.35
        : role === "alias"
          ? 0.6
          : scale < FAR
            ? 0.6
            : 1;
    ctx.lineWidth = Math.max((strong ? 1.8 : 1) + Number(width) / 3, (strong ? 1.4 : 0.5) / scale);
    for (let start = 0; start < list.length; start += BATCH) {
      const batch = list.slice(start, start + BATCH);
      ctx.setLineDash(role === "alias" || batch.some((i) => routes[i]!.kind === "alias" && strong) ? [5, 4] : []);
      ctx.beginPath();
      for (const i of batch) trace(ctx, routes[i]!.points, scale);
      ctx.stroke();
      if (scale >= ARROWS) {
        ctx.setLineDash([]);
        ctx.beginPath();
        for (const i of batch) if (routes[i]!.kind !== "alias") arrow(ctx, routes[i]!.points);
        ctx.fill();
      }
      painted += batch.length;
      if (painted >= PAUSE) {
        painted = 0;
        ctx.setLineDash([]);
        yield;
      }
    }
  }
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
}

export function trace(ctx: CanvasRenderingContext2D, points: Float32Array, scale: number): void {
  const last = points.length - 2;
  ctx.moveTo(points[0]!, points[1]!);
  if (points.length === 4 || scale < FAR / 2) ctx.lineTo(points[last]!, points[last + 1]!);
  else
    for (let i = 2; i + 5 < points.length; i += 6)
      ctx.bezierCurveTo(points[i]!, points[i + 1]!, points[i + 2]!, points[i + 3]!, points[i + 4]!, points[i + 5]!);
}

function arrow(ctx: CanvasRenderingContext2D, points: Float32Array): void {
  const last = points.length - 2;
  const [x, y] = [points[last]!, points[last + 1]!];
  let [dx, dy] = [x - points[last - 2]!, y - points[last - 1]!];
  const length = Math.hypot(dx, dy);
  if (length < 1) return;
  dx /= length;
  dy /= length;
  ctx.moveTo(x, y);
  ctx.lineTo(x - 7 * dx + 3 * dy, y - 7 * dy - 3 * dx);
  ctx.lineTo(x - 7 * dx - 3 * dy, y - 7 * dy + 3 * dx);
}

function paintBox(ctx: CanvasRenderingContext2D, drawn: Drawn, index: number, palette: Palette, scale: number): void {
  const { scene, emphasis } = drawn;
  const { x, y, width, height } = scene.places[index]!;
  const box = scene.picture.boxes[index]!;
  const { colour } = palette;
  const related =
    index === emphasis.selected || emphasis.inputs.has(index) || emphasis.users.has(index) || drawn.found.has(index);
  ctx.globalAlpha = emphasis.others === "dim" && !related ? FAINT : 1;
  const [fill, border] = fillOf(drawn, index, palette, scale);
  if (scale < FAR) {
    const grown = Math.max(0, 1.5 / scale - height); // never thinner than a pixel and a half
    ctx.fillStyle = fill;
    ctx.fillRect(x, y - grown / 2, width, height + grown);
  } else {
    const { kind } = drawn.labels[index]!;
    rounded(ctx, x, y, width, height, kind === "input" || kind === "output" ? height / 2 : 6);
    ctx.fillStyle = fill;
    ctx.fill();
    ctx.strokeStyle = border;
    ctx.lineWidth = 1;
    ctx.setLineDash(kind === "input" ? [3, 2] : []);
    ctx.stroke();
    ctx.setLineDash([]);
    paintShares(ctx, drawn, index, palette);
  }
  const ring: ColourName | null =
    index === emphasis.selected
      ? "accent"
      : emphasis.inputs.has(index)
        ? "inputs"
        : emphasis.users.has(index)
          ? "users"
          : drawn.found.has(index)
            ? "accent"
            : null;
  if (ring)
    outline(ctx, drawn.scene, index, colour[ring], (index === emphasis.selected ? 2.5 : 1.6) / Math.min(1, scale));
  paintText(
    ctx,
    drawn.labels[index]!,
    drawn.colouring.said?.[index] ?? "",
    x,
    y,
    width,
    height,
    palette,
    scale,
    drawn.colouring.ramp ? colour.text : colour.muted,
  );
  if (scale >= FAR) {
    const counted = box.group !== null;
    const { saved, gradients, ...rest } = box.marks;
    if (saved)
      badge(ctx, x + width, y + height / 2, counted ? saved : 0, colour.alias, colour["alias-fill"], palette, scale);
    if (gradients)
      badge(ctx, x, y + height / 2, counted ? gradients : 0, colour.backward, colour["backward-fill"], palette, scale);
    paintMarks(ctx, rest, drawn.scene.places[index]!, box.lane, palette, scale);
  }
}

/** On the edges of a box: returned leaves at the bottom, written is at the top right, unread at the top left. */
function paintMarks(
  ctx: CanvasRenderingContext2D,
  { returned, written, unread }: Pick<Box["marks"], "returned" | "written" | "unread">,
  { x, y, width, height }: Rectangle,
  lane: Box["lane"],
  { colour }: Palette,
  scale: number,
): void {
  const size = Math.max(5, 4 / scale); // half of a mark's width
  const shape = (...points: readonly (readonly [number, number])[]): void => {
    ctx.beginPath();
    points.forEach(([dx, dy], i) => (i ? ctx.lineTo(dx, dy) : ctx.moveTo(dx, dy)));
    ctx.closePath();
    ctx.fill();
  };
  const [left, right, bottom] = [x + 2.2 * size, x + width - 2.2 * size, y + height];
  if (returned) {
    ctx.fillStyle = colour[lane];
    shape([right - size, bottom - 1], [right + size, bottom - 1], [right, bottom + 1.3 * size]);
  }
  if (written) {
    ctx.fillStyle = colour.written;
    shape([right - size, y], [right, y - size], [right + size, y], [right, y + size]);
  }
  if (unread) {
    const arm = 0.8 * size;
    ctx.beginPath();
    for (const turn of [-1, 1]) {
      ctx.moveTo(left - arm, y - turn * arm);
      ctx.lineTo(left + arm, y + turn * arm);
    }
    ctx.lineCap = "round";
    for (const [style, thickness] of [
      [colour.background, 2.6],
      [colour.text, 1.1],
    ] as const) {
      ctx.strokeStyle = style;
      ctx.lineWidth = thickness * Math.max(1, 0.8 / scale);
      ctx.stroke();
    }
    ctx.lineCap = "butt";
  }
}

/** Fill and border: from the colouring, else from the lane. Far boxes are too small for a visible pale fill. */
function fillOf(
  { scene, labels, colouring, emphasis }: Drawn,
  index: number,
  palette: Palette,
  scale: number,
): [string, string] {
  const { colour } = palette;
  const { lane } = scene.picture.boxes[index]!;
  const far = scale < FAR;
  if (colouring.by === "direction") {
    if (far) return [colour[`${lane}-far`], colour[lane]];
    if (index === emphasis.selected) return [colour.selected, colour.accent];
    const { kind } = labels[index]!;
    return [
      kind === "module" || kind === "output"
        ? colour[`${lane}-fill`]
        : kind === "input"
          ? colour.sunken
          : colour.background,
      colour[lane],
    ];
  }
  const tint = colouring.tints[index];
  if (!tint) return far ? [colour.neutral, colour.line] : [colour["neutral-fill"], colour.line];
  if (colouring.ramp) return [palette.ramp[tint.colour]!, colour.muted];
  return [far ? palette.category[tint.colour]! : palette.categoryFill[tint.colour]!, palette.category[tint.colour]!];
}

/** The categories in a closed group, as a strip along its bottom. */
function paintShares(
  ctx: CanvasRenderingContext2D,
  { scene, colouring }: Drawn,
  index: number,
  { category, colour }: Palette,
): void {
  const tint = colouring.tints[index];
  if (!tint?.shares.length) return;
  const { x, y, width, height } = scene.places[index]!;
  let left = x + 4;
  for (const [which, share] of tint.shares) {
    ctx.fillStyle = which < 0 ? colour.neutral : category[which]!;
    ctx.fillRect(left, y + height - 5, share * (width - 8), 3);
    left += share * (width - 8);
  }
}

/** A name is cut if it must be. The second line is left out instead, but for a value of the user's. */
function paintText(
  ctx: CanvasRenderingContext2D,
  label: Label,
  value: string,
  x: number,
  y: number,
  width: number,
  height: number,
  palette: Palette,
  scale: number,
  faint: string,
): void {
  const { colour, mono } = palette;
  const module = label.kind === "module";
  const size = Math.max(FONT, LEAST_TEXT / scale);
  const small = Math.max(DETAIL_FONT, LEAST_TEXT / scale);
  const sign = module && scale >= READ ? 2 * size : 0; // the width of the sign of a closed module
  const room = (font: number): number => Math.floor((width - sign - 0.2 * font) / (LETTER * font));
  if (size > 0.95 * height || room(size) < Math.min(4, label.title.length)) return;
  const title = clip(label.title, room(size), label.kind === "input");
  const second = height < 2.35 * size || !label.detail ? "" : value ? clip(value, room(small)) : label.detail;
  const detail = second.length > room(small) ? "" : second;
  const [at, align] = sign ? [x + sign, "left" as const] : [x + width / 2, "center" as const];
  const middle = y + height / 2 + 0.35 * size;
  const font = `${size}px ${mono}`;
  if (sign) text(ctx, "▸", x + 0.7 * size, middle, faint, font, "left");
  text(ctx, title, at, detail ? middle - 0.6 * size : middle, colour.text, module ? `600 ${font}` : font, align);
  if (detail) text(ctx, detail, at, middle + 0.6 * size, faint, `${small}px ${mono}`, align);
}

function badge(
  ctx: CanvasRenderingContext2D,
  x: number,
  y: number,
  count: number,
  strong: string,
  pale: string,
  palette: Palette,
  scale: number,
): void {
  const size = Math.max(count > 99 ? 8 : 9.5, LEAST_TEXT / scale);
  ctx.beginPath();
  ctx.arc(x, y, count && scale >= READ ? 0.85 * size : 4.5, 0, 2 * Math.PI);
  ctx.fillStyle = pale;
  ctx.fill();
  ctx.strokeStyle = strong;
  ctx.lineWidth = 1;
  ctx.stroke();
  if (count && scale >= READ)
    text(ctx, String(count), x, y + 0.36 * size, strong, `600 ${size}px ${palette.sans}`, "center");
}

/** A line around a box. */
export function outline(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  index: number,
  colour: string,
  thickness: number,
): void {
  const { x, y, width, height } = scene.places[index]!;
  rounded(ctx, x, y, width, height, 6);
  ctx.strokeStyle = colour;
  ctx.lineWidth = thickness;
  ctx.stroke();
}

function text(
  ctx: CanvasRenderingContext2D,
  words: string,
  x: number,
  y: number,
  colour: string,
  font: string,
  align: CanvasTextAlign,
): void {
  if (ctx.font !== font) ctx.font = font;
  ctx.textAlign = align;
  ctx.fillStyle = colour;
  ctx.fillText(words, x, y);
}

function rounded(
  ctx: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  radius: number,
): void {
  ctx.beginPath();
  ctx.roundRect(x, y, width, height, Math.max(0, Math.min(radius, width / 2, height / 2)));
}
