// The page without a recording: it opens the file that the reader drops on it or chooses. The file is read by this page
// alone. The page's content security policy allows no connections, so no byte of it can be sent. Scripts in a dropped
// page do not run: the page is parsed as text, and only the recording in it is used.

import { fromBase64, type Host, openRecording, RecordingError, type Workbench } from "@aotviz/core";

const STYLE = `
.drop { display: grid; align-content: center; justify-items: center; gap: .5rem; box-sizing: border-box; margin: 0;
  min-height: 100%; padding: 2rem; text-align: center; border: 3px dashed GrayText; }
.drop.small { display: flex; flex-wrap: wrap; align-items: center; justify-content: start; min-height: 0;
  padding: .2rem .8rem; text-align: start; border-width: 0; }
.drop.over { border-color: Highlight; background: color-mix(in srgb, Highlight 15%, Canvas); }
.drop:not(.small) + #workbench { display: none; }
.drop.small + #workbench { --aotviz-height: calc(100vh - 2.4rem); height: auto; }
.drop h1 { font-size: 1.4rem; margin: 0; }
.drop p { margin: 0; overflow-wrap: anywhere; max-width: 40rem; }
.drop input { position: absolute; opacity: 0; width: 1px; height: 1px; }
.drop label { cursor: pointer; border: 1px solid GrayText; border-radius: 4px; padding: .2rem .8rem; }
.drop input:focus-visible + label { outline: 2px solid Highlight; }
`;
const HOLDERS = "#aotviz-recording, .aotviz-recording"; // in a page of ours; in a notebook that was exported as a page
const MARKUP = /^\s*<(!doctype html|html)\b/i;
const LOOKED_AT = 200; // bytes, to tell a page from a recording

/** The recording in the bytes of a file: those of `recording.save`, or the first in a page. Raises RecordingError. */
export function recordingIn(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const decoder = new TextDecoder();
  if (!MARKUP.test(decoder.decode(bytes.subarray(0, LOOKED_AT)))) return bytes;
  const holder = new DOMParser().parseFromString(decoder.decode(bytes), "text/html").querySelector(HOLDERS);
  const text = (holder?.textContent ?? "").trim();
  if (!text) throw new RecordingError("This page contains no recording. Open one that `recording.to_html` wrote.");
  try {
    return fromBase64(text);
  } catch {
    throw new RecordingError("The recording in this page is damaged. Was the page copied in full?");
  }
}

/** Shows a place to drop a file on, in `strip`, and the workbench of the file in `place`. */
export function openDropped(strip: HTMLElement, place: HTMLElement, host: Host): void {
  const title = document.createElement("h1");
  const said = document.createElement("p");
  const input = document.createElement("input");
  const label = document.createElement("label");
  title.textContent = "Drop a recording here";
  said.textContent =
    "A file that recording.save or recording.to_html wrote. It is read by this page and not sent anywhere.";
  Object.assign(input, { type: "file", accept: ".aotviz,.html", id: "aotviz-file" });
  Object.assign(label, { htmlFor: input.id, textContent: "Choose a file" });
  strip.className = "drop";
  strip.append(title, said, input, label);
  document.head.append(Object.assign(document.createElement("style"), { textContent: STYLE }));

  let shown: Promise<Workbench> | undefined;
  const open = (file: File | undefined): void => {
    if (!file) return;
    void shown?.then((workbench) => workbench.destroy());
    document.title = `${file.name} · aotviz`;
    title.remove();
    said.textContent = `${file.name}, read by this page and not sent anywhere.`;
    label.textContent = "Open another";
    strip.classList.add("small");
    const next = document.createElement("div");
    place.replaceChildren(next);
    const bytes = file.arrayBuffer().then((read) => recordingIn(new Uint8Array(read)));
    shown = openRecording(next, bytes, host, { focus: true });
  };
  input.addEventListener("change", () => {
    open(input.files?.[0]);
    input.value = ""; // so that the same file can be opened again
  });
  const over = (event: DragEvent, is: boolean): void => {
    event.preventDefault(); // otherwise the browser leaves this page for the file
    strip.classList.toggle("over", is);
  };
  document.addEventListener("dragover", (event) => over(event, true));
  document.addEventListener("dragleave", (event) => over(event, event.relatedTarget !== null));
  document.addEventListener("drop", (event) => {
    over(event, false);
    open(event.dataTransfer?.files[0]);
  });
}
