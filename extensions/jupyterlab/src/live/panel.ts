// The side panel: the compilations of every running kernel, newest first, as they happen. A click opens one.

import { h, quoted, replace, unquoted } from "@aotviz/core/dom";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";

import { icon } from "../icon";
import type { LiveCompilation } from "../recording_view";
import { Kernels } from "./kernels";
import type { Row } from "./protocol";
import type { WatchedKernel } from "./watched_kernel";

export type Open = (name: string, compilation: LiveCompilation) => void;

const MARKS = { running: "●", paused: "‖", done: "✓", failed: "✗" };
const WORDS = { running: "runs", paused: "stopped after", done: "done", failed: "failed in" };

export class LivePanel extends Widget {
  private frame = 0;

  constructor(
    private readonly kernels: Kernels,
    private readonly open: Open,
  ) {
    super();
    this.id = "aotviz-live";
    this.addClass("aotviz-Live");
    this.title.icon = icon;
    this.title.caption = "aotviz: live compilations";
    this.node.tabIndex = -1;
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", "Live compilations");
    kernels.changed.connect(() => this.draw());
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.kernels.start();
    this.draw();
  }

  /** Focuses the first compilation, or the panel itself if it shows none. */
  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    (this.node.querySelector("button") ?? this.node).focus();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.kernels.stop();
  }

  protected override onBeforeDetach(message: Message): void {
    this.kernels.stop();
    super.onBeforeDetach(message);
  }

  /** Several messages cause one redraw. */
  private draw(): void {
    if (this.frame || !this.isVisible) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const focused =
        (this.node.contains(document.activeElement) && document.activeElement?.getAttribute("data-key")) || "";
      replace(this.node, h("h2", {}, "Live compilations"), ...this.content());
      if (focused) this.node.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    });
  }

  private content(): HTMLElement[] {
    const found = this.kernels.found();
    if (found.length) return found.map((kernel) => this.section(kernel));
    return [
      this.kernels.running
        ? h(
            "p",
            { class: "aotviz-hint" },
            "No running kernel has imported aotviz. Run ",
            h("code", {}, "import aotviz"),
            " in a notebook. Its compilations then appear here.",
          )
        : h(
            "p",
            { class: "aotviz-hint" },
            "No Python kernel is running. Open a notebook and run ",
            h("code", {}, "import aotviz"),
            ".",
          ),
    ];
  }

  private section(kernel: WatchedKernel): HTMLElement {
    const rows = [...kernel.rows.values()].sort((a, b) => b.started_unix_ms - a.started_unix_ms);
    return h(
      "section",
      { "aria-label": kernel.session.path },
      h("h3", { title: kernel.session.path }, kernel.session.name || kernel.session.path),
      rows.length
        ? h(
            "ul",
            {},
            rows.map((row) => h("li", {}, this.line(kernel, row))),
          )
        : h("p", { class: "aotviz-hint" }, "Nothing has been compiled yet."),
    );
  }

  private line(kernel: WatchedKernel, row: Row): HTMLElement {
    const status =
      row.state === "done"
        ? `${row.stages} stages${row.from_cache === true ? " from the cache" : ""}`
        : `${WORDS[row.state]} ${row.stage}`;
    const button = h(
      "button",
      {
        type: "button",
        class: `aotviz-row ${row.state}`,
        title: unquoted(row.error) || `Open ${row.name} in the workbench`,
        data: { key: `${kernel.session.id} ${row.key}`, state: row.state },
      },
      h("span", { class: "aotviz-mark", "aria-hidden": "true" }, MARKS[row.state]),
      h("span", { class: "aotviz-name" }, row.name),
      h("span", { class: "aotviz-kind" }, row.kind),
      h("span", { class: "aotviz-status" }, status),
      h("span", { class: "aotviz-time" }, duration(row.elapsed_ms)),
      row.error && h("span", { class: "aotviz-error" }, quoted(row.error)),
    );
    button.addEventListener("click", () => this.open(row.name, kernel.open(row.key)));
    return button;
  }
}

function duration(milliseconds: number): string {
  return milliseconds < 1000 ? `${milliseconds.toFixed(0)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}
