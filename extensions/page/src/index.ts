// The static page's entry. Everything is in the file: this bundle holds the workbench and the editor; the recording
// and graphviz stand beside it as zipped text. Nothing is ever requested from anywhere.

import { fromBase64, gunzip, openRecording } from "@aotviz/core";
import { editor } from "@aotviz/core/editor";

function embedded(id: string): Uint8Array {
  return fromBase64((document.getElementById(id)?.textContent ?? "").trim());
}

const place = document.getElementById("workbench")!;
place.replaceChildren();
void openRecording(place, Promise.resolve().then(() => embedded("recording")), {
  editor: () => Promise.resolve(editor),
  graphvizWorker: async () => {
    const script = await gunzip(embedded("graphviz"));
    return new Worker(URL.createObjectURL(new Blob([script as BlobPart], { type: "text/javascript" })));
  },
}, {
  focus: true,
  bookmark: Object.fromEntries(new URLSearchParams(location.hash.slice(1))),
  onSelect: (bookmark) => history.replaceState(null, "", `#${new URLSearchParams({ ...bookmark })}`),
});
