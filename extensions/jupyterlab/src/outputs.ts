// An output of a notebook that shows a recording: by its widget while the kernel that made it runs, else from what the
// output keeps of the recording (aotviz/widgets/workbench.py). So a notebook that is opened again shows what it holds.
//
// Only ipywidgets knows whether a widget's model is there, and it says so by putting the widget into its renderer, or
// not. So that renderer is made here, out of sight, and shown once a widget is in it. In a notebook that is not trusted
// it is never made: a widget is code, what is kept is data, and the workbench treats it as a stranger's.

import type { Bookmark } from "@aotviz/core";
import type { DocumentRegistry } from "@jupyterlab/docregistry";
import type { IRenderMime, IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { Panel, type Widget } from "@lumino/widgets";

import { RecordingView } from "./recording_view";

const KEPT = "application/vnd.aotviz.recording+gzip";
const WIDGET = "application/vnd.jupyter.widget-view+json";
const SUMMARY = "text/html";
const RANK = -20; // before ipywidgets' -10
const PATIENCE_MS = 3_000; // for a widget whose kernel runs
const REST_MS = 500; // after a selection, until it is written into the notebook

type Session = DocumentRegistry.Context["sessionContext"];

/** What we use of a notebook's panel; a dependency on @jupyterlab/notebook would be for this alone. */
interface NotebookPanel extends Widget {
  readonly content: { readonly rendermime: IRenderMimeRegistry };
}

/** Has the outputs of each notebook that keep a recording shown by an OutputView. */
export const notebooks: DocumentRegistry.WidgetExtension = {
  createNew(panel, context) {
    const { rendermime } = (panel as NotebookPanel).content;
    rendermime.addFactory(
      {
        safe: true,
        mimeTypes: [KEPT],
        createRenderer: () => new OutputView(rendermime, context.sessionContext),
      },
      RANK,
    );
  },
};

export class OutputView extends Panel implements IRenderMime.IRenderer {
  private model: IRenderMime.IMimeModel | null = null;
  private shown = ""; // what of the model is shown
  private live: IRenderMime.IRenderer | null = null; // ipywidgets' renderer, with or without a widget in it
  private made: unknown = null; // the factory that made it
  private kept: Widget | null = null;
  // By the reader: what a workbench selects while it opens is not worth a change of the notebook.
  private touched = false;
  private rest: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly registry: IRenderMimeRegistry,
    private readonly session: Session,
  ) {
    super();
    this.addClass("aotviz-Output");
    for (const event of ["pointerdown", "keydown"])
      this.node.addEventListener(event, () => (this.touched = true), { capture: true });
    this.node.addEventListener("aotviz-bookmark", (event) => this.remember((event as CustomEvent<Bookmark>).detail));
  }

  /** Called again for each change of the output, e.g. of the bookmark: then there is nothing to do. */
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.model = model;
    const shown = JSON.stringify([model.trusted, model.data[KEPT], model.data[WIDGET]]);
    if (shown === this.shown) return;
    this.shown = shown;
    for (const widget of [...this.widgets]) widget.dispose();
    this.live = this.kept = this.made = null;
    const alive = (): boolean => !this.isDisposed && this.shown === shown;
    if (model.trusted && WIDGET in model.data) {
      if (this.session.isReady) await this.tryWidget(alive);
      // Ipywidgets hears of it at the same time.
      else void this.session.ready.then(() => setTimeout(() => void this.tryWidget(alive))).catch(() => undefined);
    }
    if (alive() && !this.isLive) this.showKept(model);
  }

  private get isLive(): boolean {
    return this.live instanceof Panel && this.live.widgets.length > 0;
  }

  /** Returns when there is a widget to be seen, or when it is known, or likely, that there will be none. */
  private async tryWidget(alive: () => boolean): Promise<void> {
    const factory = this.registry.getFactory(WIDGET);
    if (!alive() || !this.model || !factory || factory === this.made) return;
    this.made = factory;
    this.live?.dispose();
    const live = (this.live = this.registry.createRenderer(WIDGET));
    live.hide();
    this.addWidget(live);
    const look = (): void => {
      if (!alive() || this.live !== live || !this.isLive) return;
      this.kept?.dispose();
      this.kept = null;
      live.show();
    };
    new MutationObserver(look).observe(live.node, { childList: true });
    await Promise.race([live.renderModel(this.model), new Promise((done) => setTimeout(done, PATIENCE_MS))]).catch(
      () => undefined,
    );
    look();
  }

  private showKept(model: IRenderMime.IMimeModel): void {
    const text = String(model.data[KEPT] ?? "");
    if (text) {
      this.kept = new RecordingView(
        { load: async () => (await import("@aotviz/core")).fromBase64(text) },
        {
          bookmark: bookmarkIn(model),
          onSelect: (bookmark) => this.remember(bookmark),
        },
      );
    } else if (SUMMARY in model.data) {
      // the recording was too large
      const summary = this.registry.createRenderer(SUMMARY);
      void summary.renderModel(model);
      this.kept = summary;
    }
    if (this.kept) this.addWidget(this.kept);
  }

  /** Writes what is selected into the output's metadata: what is opened again, and what nbconvert makes, is there. */
  private remember(bookmark: Bookmark): void {
    if (!this.touched) return;
    clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      const { model } = this;
      if (this.isDisposed || !model || JSON.stringify(bookmark) === JSON.stringify(bookmarkIn(model))) return;
      model.setData({ metadata: { ...model.metadata, [KEPT]: { bookmark: { ...bookmark } } } });
    }, REST_MS);
  }

  override dispose(): void {
    clearTimeout(this.rest);
    super.dispose();
  }
}

/** The bookmark in an output's metadata, which may be anybody's: texts alone. */
function bookmarkIn({ metadata }: IRenderMime.IMimeModel): Bookmark {
  const held = (metadata[KEPT] as { bookmark?: unknown } | undefined)?.bookmark;
  const entries = typeof held === "object" && held !== null ? Object.entries(held) : [];
  return Object.fromEntries(entries.filter(([, value]) => typeof value === "string"));
}
