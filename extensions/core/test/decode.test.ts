import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { describe, expect, test } from "vitest";

import { checked, decodeRecording, gunzip, RecordingError } from "../src/decode";
import { decodeMsgpack } from "../src/msgpack";
import { Float, VERSION, type Wire } from "../src/wire";

const file = new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url)));

/** The fixture as a tree that a test may spoil. */
async function tree(): Promise<Map<Wire, Wire>> {
  return decodeMsgpack(await gunzip(file)) as Map<Wire, Wire>;
}

function at(value: Wire, ...path: (string | number)[]): Wire {
  for (const step of path) value = value instanceof Map ? value.get(step)! : (value as Wire[])[step as number]!;
  return value;
}

describe("a recording written by Python", () => {
  test("is read with every field where it belongs", async () => {
    const data = await decodeRecording(file);
    expect(data.compilations.map(({ name }) => name)).toEqual(["Net", "update<img src=x onerror=alert(1)>", "broken"]);
    const [net] = data.compilations;
    expect(net!.stages).toHaveLength(15);
    expect([...net!.stages[9]!.graphs]).toEqual([["forward", 2], ["backward", 3]]);
    expect(net!.values[0]!.shape).toEqual([64, 64]);
    expect(net!.started_unix_ns).toBeGreaterThan(1.79e18); // beyond 2^53: read, if not to the nanosecond
    expect(net!.saved_tensors[0]!.nbytes).toBe(2048);
    expect(data.compilations[2]!.error!.type).toBe("RuntimeError");
  });
});

describe("a recording of the first version", () => {
  test("is read, and what it lacks is empty", async () => {
    const old = await tree();
    for (const name of ["notes", "logs", "events", "artifacts"]) old.delete(name);
    for (const compilation of at(old, "compilations") as Map<Wire, Wire>[]) {
      for (const name of ["compile_id", "log", "graph_texts"]) compilation.delete(name);
    }
    old.set("version", 1);
    const data = checked(old);
    expect(data.events.name).toEqual([]);
    expect(data.compilations[0]!.compile_id).toBe("");
    expect(data.compilations[0]!.log).toBe(-1);
  });
  test("is not read without what it must have", async () => {
    const old = await tree();
    old.delete("strings");
    expect(() => checked(old)).toThrow("recording.strings should be a list, but is nothing");
  });
});

describe("a file that is no recording gives one clear sentence", () => {
  const opening = (bytes: Uint8Array): Promise<unknown> => decodeRecording(bytes);
  test("empty", () => expect(opening(new Uint8Array())).rejects.toThrow("not an aotviz recording"));
  test("text", () => expect(opening(new TextEncoder().encode("hello"))).rejects.toThrow("not an aotviz recording"));
  test("gzip of something else", () => expect(opening(gzipSync(Uint8Array.of(0x93, 1, 2, 3)))).rejects.toThrow("not an aotviz recording"));
  test("truncated", () => expect(opening(file.subarray(0, file.length / 2))).rejects.toThrow("damaged"));
  test("every truncation", async () => {
    const whole = await gunzip(file);
    for (let size = 1; size < whole.length; size += 997) {
      await expect(opening(gzipSync(whole.subarray(0, size)))).rejects.toBeInstanceOf(RecordingError);
    }
  });
  test("a flipped byte never throws anything but a RecordingError", async () => {
    const whole = await gunzip(file);
    for (let place = 0; place < whole.length; place += 211) {
      const bytes = whole.slice();
      bytes[place] = bytes[place]! ^ 0x91;
      await opening(gzipSync(bytes, { level: 1 })).catch((error: unknown) => expect(error).toBeInstanceOf(RecordingError));
    }
  });
  test("newer", async () => {
    const spoiled = await tree();
    spoiled.set("version", 99);
    expect(() => checked(spoiled)).toThrow(`format 99; this viewer reads up to ${VERSION}. Upgrade aotviz.`);
  });
  test("a field of the wrong type is named", async () => {
    const spoiled = await tree();
    (at(spoiled, "compilations", 0, "stages", 2) as Map<Wire, Wire>).set("name", 7);
    expect(() => checked(spoiled)).toThrow("recording.compilations[0].stages[2].name should be text, but is 7");
  });
  test("a column of another length is named", async () => {
    const spoiled = await tree();
    (at(spoiled, "compilations", 0, "graphs", 1, "value") as Wire[]).pop();
    expect(() => checked(spoiled)).toThrow("graphs[1].value should have 46 entries, one a node, but has 45");
  });
  test("an index beyond its list is named", async () => {
    const spoiled = await tree();
    (at(spoiled, "compilations", 0, "graphs", 0, "name") as Wire[])[3] = 1e6;
    expect(() => checked(spoiled)).toThrow("graphs[0].name points at 1000000");
  });
});

describe("msgpack", () => {
  const bytes = (...values: number[]): Wire => decodeMsgpack(Uint8Array.from(values));
  test("keeps an integer that a number can't hold, and a float apart from an integer", () => {
    expect(bytes(0xcf, 0x7f, 255, 255, 255, 255, 255, 255, 255)).toBe(2n ** 63n - 1n);
    expect(bytes(0xd3, 255, 255, 255, 255, 255, 255, 255, 254)).toBe(-2);
    expect(bytes(0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0)).toEqual(new Float(1));
    expect(bytes(0xe0)).toBe(-32);
  });
  test("refuses lengths that the bytes can't hold, at once", () => {
    expect(() => bytes(0xdd, 255, 255, 255, 255)).toThrow("claims 4294967295 items");
    expect(() => bytes(0xdf, 255, 255, 255, 255)).toThrow("claims 4294967295 items");
    expect(() => bytes(0xdb, 255, 255, 255, 255)).toThrow("ends in the middle");
  });
  test("refuses bottomless nesting, extensions, bad text and bytes too many", () => {
    expect(() => decodeMsgpack(new Uint8Array(5000).fill(0x91))).toThrow("nested");
    expect(() => bytes(0xc7, 1, 1, 1)).toThrow("has no place");
    expect(() => bytes(0xa1, 0xff)).toThrow("not UTF-8");
    expect(() => bytes(1, 2)).toThrow("1 bytes too many");
  });
  test("a key named __proto__ is only a key", () => {
    const map = bytes(0x81, 0xa9, ...new TextEncoder().encode("__proto__"), 0x81, 0xa1, 0x78, 1) as Map<Wire, Wire>;
    expect(map.get("__proto__")).toEqual(new Map([["x", 1]]));
    expect(({} as Record<string, unknown>)["x"]).toBeUndefined();
  });
});
