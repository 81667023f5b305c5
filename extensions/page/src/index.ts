// The static page's entry, and that of a notebook that nbconvert made a page of (aotviz/widgets/notebooks.py).
// This bundle holds the workbench; recordings stand beside it as zipped text, and so do, in a file, the editor and
// graphviz: then nothing is ever requested from anywhere. A page that is served asks its server for these two.

import { type Bookmark, type Editor, fromBase64, type Host, openRecording, unzipped } from "@aotviz/core";

function embedded(place: Element | null): Uint8Array<ArrayBuffer> {
  return fromBase64((place?.textContent ?? "").trim());
}

const bundles = new Map<string, Promise<string>>();

/**
 * The address of a bundle that stands behind the script that runs this. It is the same however often it is asked for.
 */
function bundle(name: string): Promise<string> {
  let url = bundles.get(name);
  if (!url) {
    bundles.set(name, (url = unzippedBundle(name)));
    url.catch(() => bundles.delete(name)); // it may be asked for again
  }
  return url;
}

async function unzippedBundle(name: string): Promise<string> {
  if (document.readyState === "loading")
    await new Promise((done) => document.addEventListener("DOMContentLoaded", done));
  const held = document.getElementById(`aotviz-${name}`);
  const answer = held ? new Response(unzipped(embedded(held))) : await fetch(`${name}.js`);
  if (!answer.ok) throw new Error(`The server gave no ${name} (${answer.status}).`);
  return URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: "text/javascript" }));
}

const host: Host = {
  editor: async () => ((await import(await bundle("editor"))) as { editor: Editor }).editor,
  graphvizWorker: async () => new Worker(await bundle("graphviz")),
};

const SERVED_MS = 2000; // after which a served page fetches what it may yet need: its server need not stay

/** The page of one recording, whose address remembers what is selected. */
function openPage(recording: HTMLElement): void {
  const place = document.getElementById("workbench")!;
  place.replaceChildren();
  const opened = openRecording(
    place,
    Promise.resolve().then(() => embedded(recording)),
    host,
    {
      focus: true,
      bookmark: Object.fromEntries(new URLSearchParams(location.hash.slice(1))),
      onSelect: (bookmark) => history.replaceState(null, "", `#${new URLSearchParams({ ...bookmark })}`),
    },
  );
  void opened.then(() =>
    setTimeout(() => {
      for (const name of ["editor", "graphviz"])
        if (!document.getElementById(`aotviz-${name}`)) bundle(name).catch(() => undefined); // who needs it is told
    }, SERVED_MS),
  );
}

/** A page with other things on it: each workbench opens when it is about to be seen, in place of its summary. */
function openWhereSeen(): void {
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        const place = document.createElement("div");
        target.replaceChildren(place);
        const bookmark = JSON.parse((target as HTMLElement).dataset["bookmark"] ?? "{}") as Bookmark;
        void openRecording(
          place,
          Promise.resolve().then(() => embedded(target.nextElementSibling)),
          host,
          { bookmark },
        );
      }
    },
    { rootMargin: "400px" },
  );
  for (const place of document.querySelectorAll(".aotviz-place")) seen.observe(place);
}

const recording = document.getElementById("aotviz-recording");
if (recording) openPage(recording);
else openWhereSeen();
