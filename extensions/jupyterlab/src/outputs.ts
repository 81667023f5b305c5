// Renders a notebook output that shows a recording. While the kernel that made the output runs, this is its widget.
// Otherwise it is the recording that the output contains (aotviz/widgets/workbench.py), so a reopened notebook still
// shows its recordings.
//
// Only ipywidgets knows whether a widget's model exists, and the only sign is whether it puts a widget into its
// renderer. So the renderer is created hidden, and it is shown once it contains a widget. In an untrusted notebook it
// is never created, because a widget is code. The recording in the output is data, and the workbench treats it as
// untrusted.

import type { Bookmark } from "@aotviz/core";
import type { DocumentRegistry } from "@jupyterlab/docregistry";
import type { IRenderMime, IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { Panel, type Widget } from "@lumino/widgets";

import { RecordingView } from "./recording_view";

const KEPT = "application/vnd.aotviz.recording+gzip";
const WIDGET = "application/vnd.jupyter.widget-view+json";
const SUMMARY = "text/html";
const RANK = -20; // preferred to ipywidgets' -10
const PATIENCE_MS = 3_000; // to wait for a widget whose kernel runs
const REST_MS = 500; // between a selection and its write into the notebook

type Session = DocumentRegistry.Context["sessionContext"];

/** The parts of a notebook's panel that we use. With this type we need no dependency on @jupyterlab/notebook. */
interface NotebookPanel extends Widget {
  readonly content: { readonly rendermime: IRenderMimeRegistry };
}

/** Registers OutputView for outputs that contain a recording, in every notebook. */
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

/** What a reader selected, and the paintings, as Workbench.painted has them. */
interface Stored {
  readonly bookmark: Bookmark;
  readonly painted: string;
}

export class OutputView extends Panel implements IRenderMime.IRenderer {
  private model: IRenderMime.IMimeModel | null = null;
  private shown = ""; // the part of the model that is shown
  private live: IRenderMime.IRenderer | null = null; // ipywidgets' renderer, with or without a widget in it
  private made: unknown = null; // the factory that created `live`
  private kept: Widget | null = null;
  // Only the reader's selections change the notebook, not those that a workbench makes while it opens.
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
    this.node.addEventListener("aotviz-stored", (event) => this.remember((event as CustomEvent<Stored>).detail));
  }

  /** Called for each change of the output. If only what is stored changed, there is nothing to do. */
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
      // ipywidgets gets the same signal.
      else void this.session.ready.then(() => setTimeout(() => void this.tryWidget(alive))).catch(() => undefined);
    }
    if (alive() && !this.isLive) this.showKept(model);
  }

  private get isLive(): boolean {
    return this.live instanceof Panel && this.live.widgets.length > 0;
  }

  /** Returns when a widget is visible, or when none will come or is likely to come. */
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
          ...storedIn(model),
          onSelect: (bookmark) => this.remember({ ...storedIn(this.model ?? model), bookmark }),
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

  /**
   * Writes the selection and the paintings into the output's metadata, so that a reopened notebook and nbconvert's page
   * start with them.
   */
  private remember(stored: Stored): void {
    const { model } = this;
    if (!this.touched && stored.painted === (model && storedIn(model).painted)) return;
    clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      const { model } = this;
      if (this.isDisposed || !model || JSON.stringify(stored) === JSON.stringify(storedIn(model))) return;
      const { bookmark, painted } = stored;
      const kept = { bookmark: { ...bookmark }, ...(painted && { painted }) };
      model.setData({ metadata: { ...model.metadata, [KEPT]: kept } });
    }, REST_MS);
  }

  override dispose(): void {
    clearTimeout(this.rest);
    super.dispose();
  }
}

/** What an output's metadata, which is untrusted, keeps: only strings are read. */
function storedIn({ metadata }: IRenderMime.IMimeModel): Stored {
  const { bookmark: held, painted } = (metadata[KEPT] ?? {}) as { bookmark?: unknown; painted?: unknown };
  const entries = typeof held === "object" && held !== null ? Object.entries(held) : [];
  return {
    bookmark: Object.fromEntries(entries.filter(([, value]) => typeof value === "string")),
    painted: typeof painted === "string" ? painted : "",
  };
}
