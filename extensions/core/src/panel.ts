// Shows the open view. A view is mounted when everything that it needs is loaded. During loading the previous view
// stays visible; after a moment a notice covers it. The reader can cancel the loading, and retry after a failure.

import { h, notice, replace } from "./dom";
import type { State } from "./state";
import type { Context, Mounted, View } from "./views/view";

const PATIENCE_MS = 150; // no notice for an answer that comes sooner

export class Panel implements Mounted {
  private readonly place = h("div", { class: "view" });
  private readonly cover = h("div", { class: "cover", hidden: true });
  private open: { view: View; mounted: Mounted } | null = null;
  private turn = 0; // number of the current wait; an older one shows nothing more
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly parent: HTMLElement,
    private readonly context: Context,
    private readonly viewOf: (state: State) => View,
  ) {
    replace(parent, this.place, this.cover);
  }

  update(): void {
    const { state } = this.context;
    const view = this.viewOf(state);
    this.parent.setAttribute("data-view", view.id);
    const mine = ++this.turn;
    clearTimeout(this.timer);
    const coming = this.request(view);
    if (!coming) {
      this.cover.hidden = true;
      replace(this.cover); // so that no notice of what has come stays in the page
      return this.show(view);
    }
    this.parent.setAttribute("aria-busy", "true");
    this.timer = setTimeout(
      () =>
        this.say(
          notice("loading", "Loading from the kernel …"),
          this.button("Cancel", () => this.cancel()),
        ),
      this.cover.hidden ? PATIENCE_MS : 0,
    );
    coming.then(
      () => {
        if (mine === this.turn) state.arrived();
      },
      (error: unknown) => {
        if (mine === this.turn)
          this.say(
            notice("error", "This view could not be loaded.", messageOf(error)),
            this.button("Try again", () => this.update()),
          );
      },
    );
  }

  destroy(): void {
    this.turn++;
    clearTimeout(this.timer);
    this.open?.mounted.destroy();
  }

  /** Loads what the view needs. Null if everything is loaded. */
  private request(view: View): Promise<void> | null {
    const { state } = this.context;
    const { recording, selection } = state;
    const needs = (): Promise<void> | null => recording.load(view.needs ? view.needs(state) : state.graphNeed());
    // A complete recording loads at once. Then the view may need a graph of a compilation that has just been loaded.
    return recording.load([{ what: "compilation", compilation: selection.compilation }]) ?? needs() ?? needs();
  }

  private show(view: View): void {
    this.parent.removeAttribute("aria-busy");
    try {
      if (this.open?.view === view) return this.open.mounted.update();
      this.open?.mounted.destroy();
      this.open = null;
      replace(this.place);
      this.open = { view, mounted: view.mount(this.place, this.context) };
    } catch (error) {
      this.open = null;
      replace(this.place, notice("error", "This view failed.", `${messageOf(error)} The other views still work.`));
    }
  }

  private cancel(): void {
    this.turn++;
    this.say(
      notice("empty", "This view is not loaded.", "The loading was cancelled."),
      this.button("Load", () => this.update()),
    );
  }

  private say(said: HTMLElement, button: HTMLElement): void {
    clearTimeout(this.timer);
    if (!said.classList.contains("loading")) this.parent.removeAttribute("aria-busy");
    this.cover.hidden = false;
    replace(this.cover, said, button);
  }

  private button(text: string, click: () => void): HTMLElement {
    return h("button", { type: "button", class: "small", on: { click } }, text);
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
