// Writes a recording as one HTML file, in the browser. It is the same page that the Python package writes. No text of
// the recording can become markup: the title is escaped, and everything else is base64.

declare const PAGE: string; // the page's file name, defined by build.mjs

const ESCAPED: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };

/** The page template with its placeholders filled; `title` can be any text. */
export function fill(page: string, title: string, recording: Uint8Array): string {
  const parts: Record<string, string> = {
    title: `${title} · aotviz`.replace(/[&<>"']/g, (letter) => ESCAPED[letter]!),
    preamble: "",
    summary: "",
    recording: base64(recording),
  };
  return page.replace(/\{\{(title|preamble|summary|recording)\}\}/g, (_, name: string) => parts[name]!);
}

function base64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32_768) text += String.fromCharCode(...bytes.subarray(at, at + 32_768));
  return btoa(text);
}

/** Makes the browser save the page of a recording; `name` is the name of its file or function. */
export async function download(recording: Uint8Array, name: string): Promise<void> {
  const { decodeRecording } = await import("@aotviz/core");
  await decodeRecording(recording); // raises if the page could not open this recording
  const answer = await fetch(new URL(PAGE, import.meta.url));
  if (!answer.ok) throw new Error(`The Jupyter server did not send the page template (${answer.status}).`);
  const stem = name.replace(/\.aotviz$/, "") || "recording";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([fill(await answer.text(), stem, recording)], { type: "text/html" }));
  link.download = `${stem.replace(/[^\p{L}\p{N}._ -]/gu, "_")}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
