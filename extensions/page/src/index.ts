// The entry of the static page, and of a notebook that nbconvert exported as a page (aotviz/widgets/notebooks.py).
// This bundle is the workbench. The page has the recordings as zipped text. A page that is a file also has the editor
// and graphviz, so it sends no requests. A page from a server requests these two from that server. A page with
// DROPPED for a recording opens the file that is dropped on it.

import { type Bookmark, type Editor, fromBase64, type Host, openRecording, unzipped } from "@aotviz/core";

import { openDropped } from "./dropped";

const DROPPED = "dropped"; // as aotviz/widgets/html.py writes it

function embedded(place: Element | null): Uint8Array<ArrayBuffer> {
  return fromBase64((place?.textContent ?? "").trim());
}

const bundles = new Map<string, Promise<string>>();

/**
 * The address of a bundle that the page has after this script. Every call returns the same address.
 */
function bundle(name: string): Promise<string> {
  let url = bundles.get(name);
  if (!url) {
    bundles.set(name, (url = unzippedBundle(name)));
    url.catch(() => bundles.delete(name)); // so that the next call tries again
  }
  return url;
}

async function unzippedBundle(name: string): Promise<string> {
  if (document.readyState === "loading")
    await new Promise((done) => document.addEventListener("DOMContentLoaded", done));
  const held = document.getElementById(`aotviz-${name}`);
  const answer = held ? new Response(unzipped(embedded(held))) : await fetch(`${name}.js`);
  if (!answer.ok) throw new Error(`The server did not send ${name} (${answer.status}).`);
  return URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: "text/javascript" }));
}

const host: Host = {
  editor: async () => ((await import(await bundle("editor"))) as { editor: Editor }).editor,
  graphvizWorker: async () => new Worker(await bundle("graphviz")),
};

const SERVED_MS = 2000; // until a served page fetches what it may need later, because its server may stop

/** A page with one recording; its address contains the selection. */
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
        if (!document.getElementById(`aotviz-${name}`)) bundle(name).catch(() => undefined); // the view reports it
    }, SERVED_MS),
  );
}

/** A page without a recording. */
function openEmpty(): void {
  const place = document.getElementById("workbench")!;
  const strip = document.createElement("section");
  place.before(strip);
  openDropped(strip, place, host);
}

/** A page with other content: each workbench replaces its summary when the reader is about to scroll to it. */
function openWhereSeen(): void {
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        const place = document.createElement("div");
        target.replaceChildren(place);
        const { bookmark, painted } = (target as HTMLElement).dataset;
        void openRecording(
          place,
          Promise.resolve().then(() => embedded(target.nextElementSibling)),
          host,
          { bookmark: JSON.parse(bookmark ?? "{}") as Bookmark, painted: painted ?? "" },
        );
      }
    },
    { rootMargin: "400px" },
  );
  for (const place of document.querySelectorAll(".aotviz-place")) seen.observe(place);
}

const recording = document.getElementById("aotviz-recording");
if (recording?.textContent?.trim() === DROPPED) openEmpty();
else if (recording) openPage(recording);
else openWhereSeen();
