// The anywidget entry. Every notebook that saves its widgets gets a copy of it, so it is small. The workbench, the
// editor and graphviz are bundles that the kernel sends on the first request. A page keeps one copy of each by its
// hash, for all widgets. The kernel also sends the recording, part by part, when the reader opens a part.

import type * as Core from "@aotviz/core";
import type { Bookmark, Editor, Question, Wait } from "@aotviz/core";

type Answer = { answer?: string; error?: string; changed?: boolean; progress?: string; stage?: string };

interface Model {
  get(name: "bookmark"): Bookmark;
  get(name: "painted"): string;
  set(name: "bookmark", value: Bookmark): void;
  save_changes(): void;
  send(content: unknown): void;
  on(name: "msg:custom", handler: (message: Answer, buffers: DataView[]) => void): void;
  on(name: "comm_live_update", handler: () => void): void;
  off(name: "msg:custom", handler: (message: Answer, buffers: DataView[]) => void): void;
}

declare const HASHES: { readonly [bundle: string]: string }; // defined by build.mjs

const PATIENCE_MS = 30_000;
const BEAT_MS = 10_000; // between two checks that the kernel is alive, while it works on a long question
const AGAIN_MS = 1_000; // until the first question is sent again
const answered = new WeakSet<Model>(); // models whose kernel has answered at least once
const shelf = ((globalThis as Record<symbol, unknown>)[Symbol.for("aotviz.bundles")] ??= new Map()) as Map<
  string,
  Promise<string>
>;
const GONE = "The kernel that made this output was restarted, or has ended. Run the cell again.";
let questions = 0;

/** Aborts when the kernel is gone. JupyterLab then marks a widget's element; other frontends give no sign. */
function gone(model: Model, el: HTMLElement): AbortSignal {
  const controller = new AbortController();
  const look = (): void => {
    if (el.closest(".jupyter-widgets-disconnected")) controller.abort(new Error(GONE));
  };
  model.on("comm_live_update", () => queueMicrotask(look)); // another listener sets the mark
  look();
  return controller.signal;
}

/** Whether the message was sent: JupyterLab raises an error if the kernel's connection is closed. */
function sent(model: Model, content: unknown): boolean {
  try {
    model.send(content);
  } catch {
    return false;
  }
  return true;
}

/** Sends a question to the kernel; the answer is bytes. */
function ask(
  model: Model,
  lost: AbortSignal,
  want: string | Question,
  { patient = false, asLongAsAlive = false, signal, onStage }: Wait = {},
): Promise<Uint8Array> {
  const question = `${Date.now()}.${questions++}`;
  return new Promise((resolve, reject) => {
    if (lost.aborted) return reject(lost.reason as Error);
    let again: ReturnType<typeof setTimeout> | undefined;
    let beat: ReturnType<typeof setInterval> | undefined;
    let [ended, begun, beside] = [false, false, false]; // `beside`: the kernel answers while it works on this
    const done = (): void => {
      ended = true;
      clearTimeout(timer);
      clearTimeout(again);
      clearInterval(beat);
      signal?.removeEventListener("abort", cancel);
      lost.removeEventListener("abort", end);
      model.off("msg:custom", hear);
    };
    const endFor = (reason: Error): void => {
      done();
      reject(reason);
    };
    const end = (): void => endFor(lost.aborted ? (lost.reason as Error) : new Error(GONE));
    lost.addEventListener("abort", end);
    const cancel = (): void => {
      if (!sent(model, { cancel: question })) end();
    };
    signal?.addEventListener("abort", cancel);
    const hear = (message: Answer, buffers: DataView[]): void => {
      if (message?.progress === question) {
        begun = true;
        onStage?.(message.stage ?? "");
      }
      if (message?.answer !== question) return;
      done();
      answered.add(model);
      const view = buffers[0];
      if (message.error || !view) reject(new Error(message.error ?? "The kernel's answer was empty."));
      else resolve(new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
    };
    const timer = patient
      ? undefined
      : setTimeout(() => {
          endFor(
            new Error(
              "The kernel does not answer. If it is running a cell, try again when that cell is done. If it was restarted, run this cell again.",
            ),
          );
        }, PATIENCE_MS);
    model.on("msg:custom", hear);
    if (!sent(model, { ask: want, question })) return endFor(new Error(GONE));
    // A restarted kernel does not know this question. A kernel without subshells answers nothing while it works on the
    // question.
    const isAlive = (): void =>
      void ask(model, lost, ["alive"]).then(
        () => (beside ||= !ended),
        (error: Error) => {
          if (ended || (begun && !beside)) return;
          sent(model, { cancel: question });
          endFor(error);
        },
      );
    if (asLongAsAlive) {
      beat = setInterval(isAlive, BEAT_MS);
      isAlive();
    }
    // JupyterLab sends questions through a subshell, which answers while a cell runs, but only once it exists.
    again = answered.has(model) ? undefined : setTimeout(() => sent(model, { ask: want, question }), AGAIN_MS);
  });
}

/** The blob URL of a bundle, fetched once per page. */
function bundle(model: Model, lost: AbortSignal, name: string): Promise<string> {
  const key = HASHES[name]!;
  let url = shelf.get(key);
  if (!url) {
    url = ask(model, lost, name).then(async (zipped) => {
      const text = new Blob([zipped as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
      return URL.createObjectURL(new Blob([await new Response(text).blob()], { type: "text/javascript" }));
    });
    shelf.set(key, url);
    url.catch(() => shelf.delete(key)); // so that running the cell again fetches it again
  }
  return url;
}

async function render({ model, el }: { model: Model; el: HTMLElement }): Promise<() => void> {
  const place = document.createElement("div");
  place.textContent = "Loading the workbench …";
  const style = document.createElement("style"); // it has no intrinsic width: in an HBox it would be 0 wide
  style.textContent = ".aotviz-widget { width: 100%; min-width: min(320px, 100%); }";
  el.classList.add("aotviz-widget");
  el.append(style, place);
  const lost = gone(model, el);
  try {
    const core = (await import(await bundle(model, lost, "core.js"))) as typeof Core;
    place.replaceChildren();
    const workbench = await core.openKernel(
      place,
      (question, wait) => ask(model, lost, question, wait),
      {
        editor: async () => ((await import(await bundle(model, lost, "editor.js"))) as { editor: Editor }).editor,
        graphvizWorker: async () => new Worker(await bundle(model, lost, "graphviz.js")),
      },
      {
        bookmark: model.get("bookmark"),
        follow: (changed) => {
          const hear = (message: Answer): void => {
            if (message?.changed) changed();
          };
          model.on("msg:custom", hear);
          return () => model.off("msg:custom", hear);
        },
        onSelect: (bookmark) => {
          model.set("bookmark", bookmark);
          model.save_changes();
          // Extensions/jupyterlab keeps it.
          const detail = { bookmark, painted: model.get("painted") };
          el.dispatchEvent(new CustomEvent("aotviz-stored", { detail, bubbles: true, composed: true }));
        },
      },
    );
    return () => workbench.destroy();
  } catch (error) {
    place.textContent = error instanceof Error ? error.message : String(error);
    return () => {};
  }
}

export default { render };
