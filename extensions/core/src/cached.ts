// What aotviz's cache said about a compilation, in words and colours. A hit is good news; a guard miss and a bypass are
// worth a look; a miss of a program that is new is neither.

import { milliseconds } from "./format";
import type { CacheAnswer, CompilationData } from "./wire";

const COLOURS: Readonly<Record<string, string>> = { hit: "added", "guard miss": "warn", bypass: "warn", miss: "" };

/** The CSS class of a chip. */
export function colourOfAnswer({ outcome }: CacheAnswer): string {
  return COLOURS[outcome] ?? "";
}

/** `hit · saved 2.1 s`, `miss`. */
export function answered({ outcome, saved_ns }: CacheAnswer): string {
  return saved_ns > 0 ? `${outcome} · saved ${milliseconds(saved_ns)}` : outcome;
}

/** The whole answer as text, for a tooltip. */
export function answeredInFull(answer: CacheAnswer): string {
  const lines = answer.differs.map(
    ({ name, before, after }) => `${name}: ${before || "nothing"} before, now ${after || "nothing"}`,
  );
  return [answer.words, ...lines, answer.place].filter((line) => line).join("\n");
}

/** When the entry was made, `2026-11-24 16:53 UTC`; "" if unknown. */
export function madeAt(unix_s: number): string {
  return unix_s > 0 && unix_s < 1e11
    ? `${new Date(unix_s * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`
    : "";
}

/** Nanoseconds of the stages that ran in this process. */
export function ranHere({ stages }: CompilationData): number {
  return stages.reduce((sum, stage) => sum + (stage.replayed ? 0 : stage.elapsed_ns), 0);
}
