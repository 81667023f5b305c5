// The static page's entry, and that of a notebook that nbconvert made a page of (aotviz/widgets/notebooks.py).
// Everything is in the file: this bundle holds the workbench and the editor; recordings and graphviz stand beside it as
// zipped text. Nothing is ever requested from anywhere.

import { fromBase64, gunzip, type Host, openRecording } from "@aotviz/core";
import { editor } from "@aotviz/core/editor";

function embedded(place: Element | null): Uint8Array {
  return fromBase64((place?.textContent ?? "").trim());
}

const host: Host = {
  editor: () => Promise.resolve(editor),
  graphvizWorker: async () => {
    const script = await gunzip(embedded(document.getElementById("aotviz-graphviz")));
    return new Worker(URL.createObjectURL(new Blob([script as BlobPart], { type: "text/javascript" })));
  },
};

/** The page of one recording, whose address remembers what is selected. */
function openPage(recording: HTMLElement): void {
  const place = document.getElementById("workbench")!;
  place.replaceChildren();
  void openRecording(place, Promise.resolve().then(() => embedded(recording)), host, {
    focus: true,
    bookmark: Object.fromEntries(new URLSearchParams(location.hash.slice(1))),
    onSelect: (bookmark) => history.replaceState(null, "", `#${new URLSearchParams({ ...bookmark })}`),
  });
}

/** A page with other things on it: each workbench opens when it is about to be seen, in place of its summary. */
function openWhereSeen(): void {
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      const place = document.createElement("div");
      target.replaceChildren(place);
      void openRecording(place, Promise.resolve().then(() => embedded(target.nextElementSibling)), host);
    }
  }, { rootMargin: "400px" });
  for (const place of document.querySelectorAll(".aotviz-place")) seen.observe(place);
}

const recording = document.getElementById("aotviz-recording");
if (recording) openPage(recording);
else openWhereSeen();
