// The tour: a card that goes through the steps (steps.ts), and a ring around what each one points at. The workbench
// behind it stays usable. On a first visit the rail offers the tour once; "?" starts it at any time.

import { bring, h, quoted, replace } from "../dom";
import type { Editor } from "../editor/types";
import { viewsOf } from "../views/registry";
import type { Context, Mounted } from "../views/view";
import { showLines } from "../views/wrapper/lines";
import { answered, mayInvite } from "./remembered";
import type { Step } from "./steps";

const GAP = 10; // pixels between the ring and the card
const AROUND = 4; // between the element and its ring
const INVITES = "data-aotviz-invites"; // marks the one workbench of the page that offers the tour

export interface Tour extends Mounted {
  start(): void;
  /** Handles a key while the tour is shown; whether it did. */
  key(event: KeyboardEvent): boolean;
}

export function tourOf(body: HTMLElement, rail: HTMLElement, { state, host }: Context): Tour {
  let steps: readonly Step[] = [];
  let at = -1; // -1: the tour is not shown
  let target: Element | null = null;
  let from: Element | null = null; // had the focus before
  let frame = 0;
  const root = body.getRootNode() as Document | ShadowRoot;
  const button = (text: string, click: () => void, kind = "small"): HTMLButtonElement =>
    h("button", { type: "button", class: kind, on: { click } }, text);
  const ring = h("div", { class: "tour-ring", "aria-hidden": "true", hidden: true });
  const said = h("div", { "aria-live": "polite" });
  const count = h("span", { class: "faint" });
  const back = button("Back", () => go(at - 1));
  const next = button("Next", () => go(at + 1), "small primary");
  const card = h(
    "div",
    { class: "tour-card", role: "dialog", "aria-label": "Tour of this recording", hidden: true },
    said,
    h(
      "p",
      { class: "tour-buttons" },
      count,
      h("span", { class: "spring" }),
      button("Skip", () => end()),
      back,
      next,
    ),
  );
  body.append(ring, card);

  const go = (to: number): void => {
    if (to < 0) return;
    const step = steps[to];
    if (!step) return end();
    at = to;
    target = null;
    undock();
    ring.hidden = true;
    card.hidden = false;
    replace(said, h("h3", {}, quoted(step.title)), h("p", {}, quoted(step.text)));
    count.textContent = `${at + 1} of ${steps.length}`;
    next.textContent = at + 1 < steps.length ? "Next" : "Done";
    back.disabled = at === 0;
    step.show(state);
    next.focus({ preventScroll: true });
    place();
  };
  const start = (): void => {
    answered();
    invitation?.remove();
    if (at < 0) from = root.activeElement;
    if (loaded && !state.recording.load(loaded.needsOf(state))) return begin(loaded);
    load().then(begin, (error: unknown) => {
      replace(said, h("h3", {}, "The tour could not be loaded."), h("p", {}, String(error)));
      card.hidden = false;
      arrange(body, ring, card, null);
    });
  };
  let loaded: Editor["tour"] | null = null;
  const load = async (): Promise<Editor["tour"]> => {
    loaded = (await host.editor()).tour;
    await state.recording.load(loaded.needsOf(state))?.catch(() => undefined); // then steps that need it are left out
    return loaded;
  };
  const begin = ({ stepsOf }: Editor["tour"]): void => {
    steps = stepsOf(state, { viewsOf, showLines });
    watch();
    go(0);
  };
  const end = (): void => {
    at = -1;
    card.hidden = ring.hidden = true;
    undock();
    unwatch();
    (from instanceof HTMLElement && from.isConnected ? from : body).focus({ preventScroll: true });
  };

  /** Puts the ring around the element, and the card beside it, when the page has been laid out. */
  const place = (): void => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const found = at < 0 ? null : steps[at]!.find(body);
      if (found && found !== target) bring(found, body);
      target = found;
      if (at < 0 || arrange(body, ring, card, found)) return;
      body.style.paddingBottom = `${card.offsetHeight + 2 * GAP}px`; // room below all that the step may point at
      place();
    });
  };
  const undock = (): void => {
    body.style.paddingBottom = "";
  };
  const changes = new MutationObserver((records) => {
    if (records.some(({ target: changed }) => changed !== ring && !card.contains(changed))) place();
  });
  const sizes = new ResizeObserver(place);
  const watch = (): void => {
    changes.observe(body, { subtree: true, childList: true, attributeFilter: ["class", "hidden", "aria-pressed"] });
    sizes.observe(body);
    body.addEventListener("scroll", place, { capture: true, passive: true });
  };
  const unwatch = (): void => {
    cancelAnimationFrame(frame);
    changes.disconnect();
    sizes.disconnect();
    body.removeEventListener("scroll", place, { capture: true });
  };

  let invitation: { remove(): void } | null = null;
  let invited = false;
  const update = (): void => {
    if (invited || !state.recording.has({ what: "compilation", compilation: state.selection.compilation })) return;
    invited = true;
    invitation = invite(rail, root, start);
  };
  update();
  return {
    start,
    update,
    key(event) {
      if (at < 0) return false;
      const onButton = (event.composedPath()[0] as Element).matches("button");
      if (event.key === "Escape") end();
      else if (event.key === "ArrowRight" || (event.key === "Enter" && !onButton)) go(at + 1);
      else if (event.key === "ArrowLeft") go(at - 1);
      else return false;
      event.preventDefault();
      event.stopPropagation();
      return true;
    },
    destroy() {
      unwatch();
      invitation?.remove();
    },
  };
}

/** The offer at the end of the rail, until it is answered. There is one on a page, whatever the number of workbenches. */
function invite(rail: HTMLElement, root: Document | ShadowRoot, start: () => void): { remove(): void } | null {
  const host = root instanceof ShadowRoot ? root.host : null;
  if (!host || !mayInvite() || document.querySelector(`[${INVITES}]`)) return null;
  host.setAttribute(INVITES, "");
  const remove = (): void => {
    host.removeAttribute(INVITES);
    element.remove();
  };
  const element = h(
    "aside",
    { class: "invitation", "aria-label": "Tour" },
    h("span", {}, "New here?"),
    h("button", { type: "button", class: "link", on: { click: start } }, "Take a tour of this recording"),
    h(
      "button",
      {
        type: "button",
        class: "close",
        title: "Do not offer the tour again. “?” starts it at any time.",
        "aria-label": "Do not offer the tour again",
        on: {
          click: () => {
            answered();
            remove();
          },
        },
      },
      "×",
    ),
  );
  rail.append(element);
  return { remove };
}

interface Box {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

/** Whether the card has its place. If not, there is no room beside the target yet. */
function arrange(body: HTMLElement, ring: HTMLElement, card: HTMLElement, target: Element | null): boolean {
  const outer = body.getBoundingClientRect();
  const box = target && visible(target, body);
  if (ring.hidden !== (box === null)) ring.hidden = box === null;
  if (box) {
    // The border of the workbench is outside the box that `left` and `top` count from.
    ring.style.left = `${box.left - body.clientLeft}px`;
    ring.style.top = `${box.top - body.clientTop}px`;
    ring.style.width = `${box.right - box.left}px`;
    ring.style.height = `${box.bottom - box.top}px`;
  }
  const found = besideOf(box, card.offsetWidth, card.offsetHeight, outer.width, outer.height);
  if (!found && !body.style.paddingBottom) return false;
  const { x, y } = found ?? besideOf(null, card.offsetWidth, card.offsetHeight, outer.width, outer.height)!;
  card.style.left = `${x - body.clientLeft}px`;
  card.style.top = `${y - body.clientTop}px`;
  return true;
}

/** The part of an element that is not scrolled away, with some space around it; null if all of it is. */
function visible(element: Element, body: HTMLElement): Box | null {
  const outer = body.getBoundingClientRect();
  let { left, top, right, bottom }: Box = element.getBoundingClientRect();
  [left, top, right, bottom] = [left - AROUND, top - AROUND, right + AROUND, bottom + AROUND];
  for (let around: Element | null = element.parentElement; around; around = around.parentElement) {
    if (getComputedStyle(around).overflow !== "visible") {
      const clip = around.getBoundingClientRect();
      [left, top] = [Math.max(left, clip.left), Math.max(top, clip.top)];
      [right, bottom] = [Math.min(right, clip.right), Math.min(bottom, clip.bottom)];
    }
    if (around === body) break;
  }
  if (left >= right || top >= bottom) return null;
  return { left: left - outer.left, top: top - outer.top, right: right - outer.left, bottom: bottom - outer.top };
}

/** Where a card of a size fits beside a box: below, above, right or left of it; null if it fits nowhere. */
export function besideOf(
  box: Box | null,
  width: number,
  height: number,
  outerWidth: number,
  outerHeight: number,
): { x: number; y: number } | null {
  const [farX, farY] = [Math.max(GAP, outerWidth - width - GAP), Math.max(GAP, outerHeight - height - GAP)];
  if (!box) return { x: farX, y: farY };
  const [x, y] = [Math.max(GAP, Math.min(box.left, farX)), Math.max(GAP, Math.min(box.top, farY))];
  if (box.bottom + GAP <= farY) return { x, y: box.bottom + GAP };
  if (box.top - GAP - height >= GAP) return { x, y: box.top - GAP - height };
  if (box.right + GAP <= farX) return { x: box.right + GAP, y };
  if (box.left - GAP - width >= GAP) return { x: box.left - GAP - width, y };
  return null;
}
