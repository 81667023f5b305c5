import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { describe, expect, test, vi } from "vitest";

import { countsOf } from "../src/counting";
import { decodePart, decodeRecording, gunzip, type Opening, RecordingError, withoutHead } from "../src/decode";
import { Recording } from "../src/model";
import { MAX_ITEMS } from "../src/msgpack";
import { State } from "../src/state";
import { Float, MAGIC, type RecordingData, VERSION, type Wire } from "../src/wire";
import { asTree, packed } from "./packed";

const file = new Uint8Array(readFileSync(new URL("fixture.aotviz", import.meta.url)));

const page = new Uint8Array(readFileSync(new URL("fixture.page", import.meta.url))); // the same, as a page holds it

/** The fixture as a tree that a test may spoil. */
async function tree(): Promise<Map<Wire, Wire>> {
  return asTree(await gunzip(withoutHead(file))) as Map<Wire, Wire>;
}

/** A short text in msgpack. */
function text(letters: string): number[] {
  return [0xa0 + letters.length, ...new TextEncoder().encode(letters)];
}

/** What the page reads of a tree. */
function opened(tree: Wire): Promise<RecordingData> {
  return decodeRecording(gzipSync(packed(tree), { level: 1 }));
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
    expect([...net!.stages[9]!.graphs]).toEqual([
      ["forward", 2],
      ["backward", 3],
    ]);
    expect(net!.values[0]!.shape).toEqual([64, 64]);
    expect(net!.started_unix_ns).toBeGreaterThan(1.79e18); // beyond 2^53: read, if not to the nanosecond
    expect(net!.saved_tensors[0]!.nbytes).toBe(2048);
    expect(data.compilations[2]!.error!.type).toBe("RuntimeError");
  });
});

describe("the head that save() writes before a recording", () => {
  const end = MAGIC.length + 2;
  const head = (version: number): Uint8Array => {
    const other = file.slice();
    other.set([version >> 8, version & 255], MAGIC.length);
    return other;
  };
  test("is there, and what follows it is read with it and without it", async () => {
    expect([...file.subarray(0, end)]).toEqual([...MAGIC, 0, VERSION]);
    expect(await decodeRecording(file)).toEqual(await decodeRecording(file.subarray(end)));
  });
  test("is read of a part of a larger buffer", async () => {
    const larger = new Uint8Array(file.length + 7);
    larger.set(file, 3);
    expect(await decodeRecording(larger.subarray(3, 3 + file.length))).toEqual(await decodeRecording(file));
  });
  test("says what a newer aotviz wrote, before anything of it is read", async () => {
    for (const version of [VERSION + 1, 300]) {
      await expect(decodeRecording(head(version).subarray(0, end))).rejects.toThrow(
        `format ${version}; this viewer reads up to ${VERSION}. Upgrade aotviz.`,
      );
    }
  });
  test("is damaged where it says no format, or ends too early", async () => {
    await expect(decodeRecording(head(0))).rejects.toThrow("damaged: its head says format 0");
    for (let size = 1; size <= end; size++)
      await expect(decodeRecording(file.subarray(0, size))).rejects.toThrow("damaged: it ends too early");
  });
});

describe("a recording of the first version", () => {
  test("is read, and what it lacks is empty", async () => {
    const old = await tree();
    for (const name of ["notes", "logs", "events", "artifacts"]) old.delete(name);
    for (const compilation of at(old, "compilations") as Map<Wire, Wire>[]) {
      for (const name of ["compile_id", "log", "graph_texts", "storages", "recomputed"]) compilation.delete(name);
    }
    old.set("version", 1);
    const data = await opened(old);
    expect(data.events.name).toEqual([]);
    expect(data.compilations[0]!.compile_id).toBe("");
    expect(data.compilations[0]!.log).toBe(-1);
    expect(data.compilations[1]!.storages).toEqual([]);
  });
  test("is not read without what it must have", async () => {
    const old = await tree();
    old.delete("strings");
    await expect(opened(old)).rejects.toThrow("recording.strings should be a list, but is nothing");
  });
});

describe("a file that is no recording gives one clear sentence", () => {
  const opening = (bytes: Uint8Array): Promise<unknown> => decodeRecording(bytes);
  test("empty", () => expect(opening(new Uint8Array())).rejects.toThrow("not an aotviz recording"));
  test("text", () => expect(opening(new TextEncoder().encode("hello"))).rejects.toThrow("not an aotviz recording"));
  test("gzip of something else", () =>
    expect(opening(gzipSync(Uint8Array.of(0x93, 1, 2, 3)))).rejects.toThrow("not an aotviz recording"));
  test("truncated", () => expect(opening(file.subarray(0, file.length / 2))).rejects.toThrow("damaged"));
  test("every truncation", async () => {
    const whole = await gunzip(withoutHead(file));
    for (let size = 1; size < whole.length; size += 997) {
      await expect(opening(gzipSync(whole.subarray(0, size)))).rejects.toBeInstanceOf(RecordingError);
    }
  });
  test.each([
    ["file", file],
    ["page", page],
  ])(
    "a flipped byte of a %s never throws anything but a RecordingError",
    async (_, kept) => {
      const whole = await gunzip(withoutHead(kept));
      for (let place = 0; place < whole.length; place += 97) {
        for (const other of [0x91, 0x01, 0x80]) {
          const bytes = whole.slice();
          bytes[place] = bytes[place]! ^ other;
          await opening(gzipSync(bytes, { level: 1 })).catch((error: unknown) =>
            expect(error).toBeInstanceOf(RecordingError),
          );
        }
      }
    },
    60_000,
  );
  test("newer", async () => {
    const spoiled = await tree();
    spoiled.set("version", 99);
    await expect(opened(spoiled)).rejects.toThrow(`format 99; this viewer reads up to ${VERSION}. Upgrade aotviz.`);
  });
  test("a field of the wrong type is named", async () => {
    const spoiled = await tree();
    (at(spoiled, "compilations", 0, "stages", 2) as Map<Wire, Wire>).set("name", 7);
    await expect(opened(spoiled)).rejects.toThrow("recording.compilations[0].stages[2].name should be text, but is 7");
  });
  test("so is one in a column, in a long list of texts, in a record by position, of a map and of its key", async () => {
    const expecting = async (said: string, spoil: (whole: Map<Wire, Wire>) => void): Promise<void> => {
      const spoiled = await tree();
      spoil(spoiled);
      await expect(opened(spoiled)).rejects.toThrow(`This recording is damaged: recording.${said}.`);
    };
    await expecting(
      "compilations[0].graphs[0].value[5] should be an integer, but is a list",
      (whole) => ((at(whole, "compilations", 0, "graphs", 0, "value") as Wire[])[5] = []),
    );
    await expecting(
      "strings[70] should be text, but is None",
      (whole) => ((at(whole, "strings") as Wire[])[70] = null),
    );
    await expecting(
      "compilations[0].values[1].shape should be a list, but is 1.5",
      (whole) => ((at(whole, "compilations", 0, "values", 1) as Wire[])[2] = new Float(1.5)),
    );
    await expecting(
      "compilations[0].values[1].shape[0] should be an integer or text, but is true",
      (whole) => ((at(whole, "compilations", 0, "values", 1, 2) as Wire[])[0] = true),
    );
    await expecting(
      "compilations[0].values[1] should be 10 fields, but is 9",
      (whole) => void (at(whole, "compilations", 0, "values", 1) as Wire[]).pop(),
    );
    await expecting("compilations[1].error should be an ErrorRecord or None, but is 7", (whole) =>
      (at(whole, "compilations", 1) as Map<Wire, Wire>).set("error", 7),
    );
    await expecting("compilations[0].stages[9].graphs.forward should be an integer, but is two", (whole) =>
      (at(whole, "compilations", 0, "stages", 9, "graphs") as Map<Wire, Wire>).set("forward", "two"),
    );
    await expecting("producer (one of its keys) should be text, but is 1", (whole) =>
      (at(whole, "producer") as Map<Wire, Wire>).set(1, "one"),
    );
  });
  test("a part says what it is a part of", async () => {
    await expect(decodePart(gzipSync(packed(new Map([["code", 3]]))), "CodePart")).rejects.toThrow(
      "damaged: CodePart.code should be a map, but is 3.",
    );
    await expect(decodePart(gzipSync(packed([])), "CodePart")).rejects.toThrow(
      "damaged: CodePart should be a CodePart, but is a list.",
    );
  });
  test("a column of another length is named", async () => {
    const spoiled = await tree();
    (at(spoiled, "compilations", 0, "graphs", 1, "value") as Wire[]).pop();
    await expect(opened(spoiled)).rejects.toThrow("graphs[1].value should have 46 entries, one per node, but has 45");
  });
  test("a circle of views is refused", async () => {
    const spoiled = await tree();
    (at(spoiled, "compilations", 1, "storages", 0, "tensors", 1) as Wire[])[6] = 3;
    await expect(opened(spoiled)).rejects.toThrow("storages[0].tensors[1] points at 3, of 1");
  });
  test("an index beyond its list is named", async () => {
    const spoiled = await tree();
    (at(spoiled, "compilations", 0, "graphs", 0, "name") as Wire[])[3] = 1e6;
    await expect(opened(spoiled)).rejects.toThrow("graphs[0].name points at 1000000");
  });
});

describe("a recording that lies", () => {
  const spoil = async (change: (net: Wire, whole: Map<Wire, Wire>) => void): Promise<RecordingData> => {
    const spoiled = await tree();
    change(at(spoiled, "compilations", 0), spoiled);
    return opened(spoiled);
  };
  test("about how many nodes there are", async () => {
    const opening = spoil((net) => (at(net, "graphs", 0) as Map<Wire, Wire>).set("op", "c".repeat(3_000_000)));
    await expect(opening).rejects.toThrow("graphs[0].name should have 3000000 entries, one per node");
  });
  test("about how many compilations there are", async () => {
    const opening = spoil((_, whole) =>
      whole.set("compilations", new Array<Wire>(20_001).fill(at(whole, "compilations", 2))),
    );
    await expect(opening).rejects.toThrow("it claims 20001 compilations");
  });
  test("about what a stage's graph is", async () => {
    const opening = spoil((net) => (at(net, "stages", 9, "graphs") as Map<Wire, Wire>).set("forward", 99));
    await expect(opening).rejects.toThrow("graphs points at 99");
  });
  test("with an argument that comes later, or is the node itself, reads as an argument and not as an edge", async () => {
    const spoiled = await tree();
    const args = at(spoiled, "compilations", 0, "graphs", 0, "args") as Wire[];
    for (let i = 0; i < args.length; i++) args[i] = [[0], [-1], [-5], [1e9]];
    const state = new State(Recording.whole(await opened(spoiled)));
    expect(state.graph!.nodes.length).toBeGreaterThan(40);
    expect(state.graph!.nodes.every(({ inputs }) => inputs.length === 0)).toBe(true);
  });
});

describe("a large recording", () => {
  const HEAD = [
    0x83,
    ...text("format"),
    ...text("aotviz"),
    ...text("version"),
    VERSION,
    ...text("compilations"),
    0x91,
    0x81,
    ...text("graphs"),
    0x91,
    0x82,
    ...text("op"),
    ...text("pffo"),
    ...text("args"),
  ];
  /** One whose only graph has so many arguments, each of them an empty list. */
  const large = (args: number): Uint8Array => {
    const packed = new Uint8Array(HEAD.length + 5 + args).fill(0x90);
    packed.set([...HEAD, 0xdd, ...[24, 16, 8, 0].map((bits) => (args >>> bits) & 0xff)]);
    return packed;
  };
  test("is told by its counts to be too large, and not called damaged", async () => {
    const opening = decodeRecording(gzipSync(large((1 << 25) + 1), { level: 1 }));
    await expect(opening).rejects.toThrow("too large for a page: 4 nodes in 1 graph of 1 compilation. In a notebook");
  });
  test("is told before it is read, where that takes long", async () => {
    const said: string[] = [];
    const say = (size: string): Promise<Opening> => (said.push(size), Promise.reject(new Error("not read yet")));
    await expect(decodeRecording(gzipSync(large(1 << 23), { level: 1 }), say)).rejects.toThrow("not read yet");
    expect(said).toEqual(["4 nodes in 1 graph of 1 compilation"]);
    await decodeRecording(file, say); // small: nothing is said
  });
  /** The fixture with a text of 8 MiB that no page looks at. */
  const heavy = async (): Promise<Uint8Array> => {
    const [light, letters] = [await gunzip(withoutHead(file)), 1 << 23];
    const packed = new Uint8Array(light.length + 9 + letters).fill(0x78);
    packed.set(light);
    packed[2]!++; // a map of one more field
    packed.set([...text("pad"), 0xdb, ...[24, 16, 8, 0].map((bits) => (letters >>> bits) & 0xff)], light.length);
    return gzipSync(packed, { level: 1 });
  };
  test("is read step by step, and is what it is when it is read at once", async () => {
    const shares: number[] = [];
    const opening: Opening = { signal: new AbortController().signal, told: (share) => shares.push(share) };
    expect(await decodeRecording(await heavy(), async () => opening)).toEqual(await decodeRecording(file));
    expect(shares.length).toBeGreaterThan(100);
    expect(shares).toEqual([...shares].sort((a, b) => a - b));
    expect(shares.every((share) => share > 0 && share <= 1)).toBe(true);
  });
  test("is not read on when the reader has had enough", async () => {
    const stop = new AbortController();
    stop.abort();
    const told = vi.fn();
    await expect(decodeRecording(await heavy(), async () => ({ signal: stop.signal, told }))).rejects.toThrow("abort");
    expect(told).not.toHaveBeenCalled();
  });
  test("is read where a page can hold it", () => {
    const items = (1 << 24) + 9; // more than a tree may have
    expect(countsOf(large(items))).toEqual({ items: items + 8, compilations: 1, graphs: 1, nodes: 4 });
  });
  test("that is damaged is called so", async () => {
    const packed = large((1 << 25) + 1);
    await expect(decodeRecording(gzipSync(packed.subarray(0, packed.length - 1), { level: 1 }))).rejects.toThrow(
      "damaged",
    );
  });
  test("has the counts that its reader finds", async () => {
    const data = await decodeRecording(file);
    const graphs = data.compilations.flatMap((compilation) => compilation.graphs);
    expect(countsOf(await gunzip(withoutHead(file)))).toMatchObject({
      compilations: data.compilations.length,
      graphs: graphs.length,
      nodes: graphs.reduce((sum, { op }) => sum + op.length, 0),
    });
  });
});

describe("columns as differences, as in a page", () => {
  test("are undone", async () => {
    expect((asTree(await gunzip(page)) as Map<Wire, Wire>).get("deltas")).toBe(true);
    expect(await decodeRecording(page)).toEqual(await decodeRecording(file));
  });
  test("mean nothing where the recording does not say that it has them", async () => {
    const bytes = await gunzip(page);
    const says = new TextDecoder("latin1").decode(bytes).lastIndexOf("deltas");
    bytes[says + "deltas".length] = 0xc2; // false
    await expect(decodeRecording(gzipSync(bytes))).rejects.toThrow("it contains differences but is not marked so");
  });
  test("claim no more texts than a page can hold", async () => {
    const nuls = new Uint8Array((1 << 24) + 1); // 17 MB of NULs are 17 kB of gzip
    const whole = Buffer.concat([
      Uint8Array.of(0x83, ...text("format"), ...text("aotviz"), ...text("strings"), 0xdb, 1, 0, 0, 1),
      nuls,
      Uint8Array.of(...text("deltas"), 0xc3),
    ]);
    await expect(decodeRecording(gzipSync(whole))).rejects.toThrow("This recording is damaged: it has too many texts.");
  });
  test("of another shape are refused like any other", async () => {
    const spoiled = asTree(await gunzip(page)) as Map<Wire, Wire>;
    (at(spoiled, "compilations", 0, "graphs", 0) as Map<Wire, Wire>).set("name", "no list");
    await expect(opened(spoiled)).rejects.toThrow("graphs[0].name should be a list, but is no list");
    // A step, and nothing that it leads on from.
    (at(spoiled, "compilations", 0) as Map<Wire, Wire>).set("graphs", []).set("values", [3]);
    await expect(opened(spoiled)).rejects.toThrow("values[0] should be a ValueRecord, but is 3");
  });
});

describe("msgpack", () => {
  const bytes = (...values: number[]): Wire => asTree(Uint8Array.from(values));
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
  test("refuses more items than a page can hold, before it makes them", () => {
    const packed = new Uint8Array(5 + MAX_ITEMS + 1); // 32 MB of zeros are 32 kB of gzip
    packed.set([0xdd, 2, 0, 0, 1]);
    expect(() => asTree(packed)).toThrow("more than 33,554,432 items");
  });
  test("refuses bottomless nesting, extensions, bad text and bytes too many", () => {
    expect(() => asTree(new Uint8Array(5000).fill(0x91))).toThrow("nested");
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
