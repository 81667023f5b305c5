// A workbench as a JupyterLab widget. The recording comes from a file or from a kernel.

import type { Ask, Options, Workbench } from "@aotviz/core";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";

import { host } from "./host";

/** A compilation in a running kernel. */
export interface LiveCompilation {
  /** Asks the kernel for a part of the recording. */
  readonly ask: Ask;
  /** Calls back when the recording grows, until the returned function is called. */
  readonly follow: (changed: () => void) => () => void;
  /** The whole recording as it is now. */
  recording(): Promise<Uint8Array>;
  /** Called when the view is closed. */
  release(): void;
}

export class RecordingView extends Widget {
  private workbench: Promise<Workbench> | null = null;
  private bytes: Promise<Uint8Array> | null = null;

  /** A file's `load` gives the recording's bytes; it is called when the view is shown, and again by `reload`. */
  constructor(
    private readonly source: { load(): Promise<Uint8Array> } | LiveCompilation,
    private readonly options: Options = {},
  ) {
    super();
    this.addClass("aotviz-RecordingView");
  }

  /** The recording as it is shown. */
  recording(): Promise<Uint8Array> {
    return "load" in this.source ? (this.bytes ??= this.source.load()) : this.source.recording();
  }

  /** Loads the recording again and shows it. */
  reload(): void {
    this.bytes = null;
    const before = this.workbench;
    const place = document.createElement("div");
    place.className = "aotviz-place";
    this.node.replaceChildren(place);
    this.workbench = (async () => {
      (await before)?.destroy();
      const { openKernel, openRecording } = await import("@aotviz/core");
      if ("load" in this.source) return openRecording(place, this.recording(), host, this.options);
      return openKernel(place, this.source.ask, host, { follow: this.source.follow });
    })();
    this.workbench.catch((error: unknown) => place.replaceChildren(`The viewer could not be loaded: ${String(error)}`));
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (!this.workbench) this.reload();
  }

  /** JupyterLab has focused our element; the workbench takes the focus once it exists. */
  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    void this.workbench?.then(
      () => {
        const workbench = this.node
          .querySelector(".aotviz-place")
          ?.shadowRoot?.querySelector<HTMLElement>(".workbench");
        if (document.activeElement === this.node) workbench?.focus({ preventScroll: true });
      },
      () => undefined,
    );
  }

  override dispose(): void {
    if (this.isDisposed) return;
    void this.workbench?.then((workbench) => workbench.destroy());
    if (!("load" in this.source)) this.source.release();
    super.dispose();
  }
}
