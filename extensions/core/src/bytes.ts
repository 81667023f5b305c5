/**
 * The bytes of base64 text. Without a decoder of the browser's own this is a loop: a callback per letter is slower.
 */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const { fromBase64: native } = Uint8Array as { fromBase64?(text: string): Uint8Array<ArrayBuffer> };
  if (native) return native.call(Uint8Array, text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/** Unzips gzip's bytes. They are written directly, because a Blob's stream would fetch them from another process. */
export function unzipped(zipped: Uint8Array<ArrayBuffer>): ReadableStream<Uint8Array<ArrayBuffer>> {
  const { readable, writable } = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  for (const done of [writer.write(zipped), writer.close()]) done.catch(() => {}); // the reader gets the error
  return readable;
}
