// A workbench as a JupyterLab widget, wherever its bytes come from: a file or a kernel.

import type { Workbench } from "@aotviz/core";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";

import { host } from "./host";

export class RecordingView extends Widget {
  private workbench: Promise<Workbench> | null = null;
  private bytes: Promise<Uint8Array> | null = null;

  /** `load` gives the recording's bytes; it is called when the view is shown, and again by `reload`. */
  constructor(private readonly load: () => Promise<Uint8Array>) {
    super();
    this.addClass("aotviz-RecordingView");
  }

  /** The recording as it is shown. */
  recording(): Promise<Uint8Array> {
    return (this.bytes ??= this.load());
  }

  /** Shows what `load` gives now. */
  reload(): void {
    this.bytes = null;
    const before = this.workbench;
    const place = document.createElement("div");
    place.className = "aotviz-place";
    this.node.replaceChildren(place);
    this.workbench = (async () => {
      (await before)?.destroy();
      const { openRecording } = await import("@aotviz/core");
      return openRecording(place, this.recording(), host);
    })();
    this.workbench.catch((error: unknown) => place.replaceChildren(`The viewer could not be loaded: ${String(error)}`));
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (!this.workbench) this.reload();
  }

  override dispose(): void {
    if (this.isDisposed) return;
    void this.workbench?.then((workbench) => workbench.destroy());
    super.dispose();
  }
}
