// The compile time as a flame graph: modules by their paths, the lines below them; a width is a share of the time.
// Each frame is a button. Enter or a click makes a frame as wide as the page, and again, or Escape, goes back up.

import { calledIn } from "../../called";
import { h, replace } from "../../dom";
import { milliseconds, plural } from "../../format";
import type { State } from "../../state";
import type { TimeFrame } from "../../wire";

const ROW = 24; // pixels
const SECOND = 1e9; // nanoseconds
const NAMED = 3; // compilations

interface Placed {
  readonly frame: TimeFrame;
  readonly start: number; // seconds from the left
  readonly parent: Placed | null;
}

/** Where each frame begins, so that those in one stand beside each other from its left edge. */
export function placed(frames: readonly TimeFrame[]): Placed[] {
  const path: { at: Placed; next: number }[] = [];
  let left = 0;
  return frames.map((frame) => {
    path.length = Math.min(path.length, Math.max(0, frame.depth));
    const around = path.at(-1);
    const at: Placed = { frame, start: around ? around.next : left, parent: around?.at ?? null };
    if (around) around.next += frame.seconds;
    else left += frame.seconds;
    path.push({ at, next: at.start });
    return at;
  });
}

/** Draws the frames into an element; `tell` is given what the readout says. */
export class Flame {
  readonly element = h("div", { class: "flame", role: "group", "aria-label": "Compile time by module and line" });
  private all: Placed[] = [];
  private total = 0;
  private top: Placed | null = null; // as wide as the page
  private buttons = new Map<Placed, HTMLButtonElement>();

  constructor(
    private readonly state: State,
    private readonly tell: (words: (HTMLElement | string)[]) => void,
  ) {
    this.element.addEventListener("keydown", (event) => this.press(event));
  }

  show(frames: readonly TimeFrame[]): void {
    this.all = placed(frames);
    this.total = frames.reduce((sum, { depth, seconds }) => sum + (depth ? 0 : seconds), 0);
    this.top = null;
    this.draw();
  }

  private draw(): void {
    const around = lineage(this.top);
    const [begin, length] = this.top ? [this.top.start, this.top.frame.seconds] : [0, this.total];
    const inside = (one: Placed): boolean => around.includes(one) || !this.top || lineage(one).includes(this.top);
    const shown = this.all.filter(inside);
    this.buttons = new Map(shown.map((one) => [one, this.button(one, around.includes(one), begin, length)]));
    const rows = 1 + Math.max(0, ...shown.map(({ frame }) => frame.depth));
    const space = h("div", { class: "frames" }, [...this.buttons.values()]);
    space.style.height = `${rows * ROW}px`;
    replace(this.element, space);
    this.focusable(this.top ?? shown[0]);
  }

  private button(one: Placed, whole: boolean, begin: number, length: number): HTMLButtonElement {
    const { name, depth, seconds, place, kind } = one.frame;
    const share = `${Math.round((100 * seconds) / this.total)}%`;
    const button = h(
      "button",
      {
        type: "button",
        class: `frame ${place ? "line" : kind ? "module" : "part"}${whole ? " around" : ""}`,
        tabindex: "-1",
        "aria-label": `${name}, ${milliseconds(seconds * SECOND)}, ${share}`,
        on: {
          click: () => this.zoom(one),
          focus: () => this.tell(this.words(one)),
          pointerenter: () => this.tell(this.words(one)),
        },
      },
      name,
    );
    button.style.top = `${depth * ROW}px`;
    button.style.left = whole ? "0" : `${(100 * (one.start - begin)) / length}%`;
    button.style.width = whole ? "100%" : `${(100 * seconds) / length}%`;
    return button;
  }

  private zoom(one: Placed): void {
    this.top = this.top === one ? one.parent : one;
    this.draw();
    this.buttons.get(one)?.focus({ preventScroll: true });
  }

  private press(event: KeyboardEvent): void {
    const now = [...this.buttons].find(([, button]) => button === event.target)?.[0];
    if (!now || event.ctrlKey || event.metaKey || event.altKey) return;
    const shown = [...this.buttons.keys()];
    const beside = shown.filter(({ frame }) => frame.depth === now.frame.depth);
    const steps: Record<string, () => Placed | null | undefined> = {
      ArrowUp: () => now.parent,
      ArrowDown: () => shown.find(({ parent }) => parent === now),
      ArrowLeft: () => beside[beside.indexOf(now) - 1],
      ArrowRight: () => beside[beside.indexOf(now) + 1],
      Home: () => beside[0],
      End: () => beside.at(-1),
    };
    if (event.key === "Escape" && this.top) this.zoom(this.top);
    else if (event.key in steps) this.focusable(steps[event.key]!() ?? now, true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The one frame that the Tab key comes to. */
  private focusable(one: Placed | undefined, focus = false): void {
    for (const [other, button] of this.buttons) button.tabIndex = other === one ? 0 : -1;
    if (focus && one) this.buttons.get(one)?.focus();
  }

  private words({ frame }: Placed): (HTMLElement | string)[] {
    const { name, kind, seconds, place, code, ids } = frame;
    const { compilations } = this.state.recording.index;
    const positions = new Map(compilations.map((head, i) => [head.id, i]));
    const opens = (id: string): HTMLElement | string => {
      const at = positions.get(id);
      if (at === undefined) return id;
      const open = (): void => this.state.openCompilation(at);
      return h("button", { type: "button", class: "link", on: { click: open } }, calledIn(compilations[at]!));
    };
    return [
      h("b", {}, code || name),
      ` · ${milliseconds(seconds * SECOND)}, ${Math.round((100 * seconds) / this.total)}%`,
      kind ? ` · ${kind}` : "",
      place ? ` · ${place}` : "",
      ` · ${plural(ids.length, "compilation")}: `,
      ...ids.slice(0, NAMED).flatMap((id, i) => (i ? [", ", opens(id)] : [opens(id)])),
      ids.length > NAMED ? `, and ${ids.length - NAMED} more` : "",
    ];
  }
}

/** A frame and those around it. */
function lineage(one: Placed | null): Placed[] {
  const found: Placed[] = [];
  for (let at = one; at; at = at.parent) found.push(at);
  return found;
}
