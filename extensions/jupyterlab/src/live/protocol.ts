// The messages between a kernel and the panel. The kernel's side is aotviz/live/panel.py, which explains the rules.

import type { Question as Part } from "@aotviz/core";

export const TARGET = "aotviz.live";

/** The state of a compilation. "paused" means between two stages, for example while a user steps through it. */
export type Progress = "running" | "paused" | "done" | "failed";

export interface Row {
  readonly key: string;
  readonly name: string;
  readonly kind: string;
  readonly state: Progress;
  /** The running stage, or the last one that ran. */
  readonly stage: string;
  readonly stages: number; // that have finished
  readonly elapsed_ms: number; // of those
  readonly started_unix_ms: number;
  readonly error: string;
  readonly from_cache?: boolean; // not compiled: aotviz's cache had it; an older kernel does not say
}

export type Question =
  | { readonly ask: "watch"; readonly who: string } // send all rows now, and each row again when it changes
  | { readonly ask: "stop"; readonly who: string }
  | { readonly ask: "recording"; readonly question: string; readonly key: string }
  | { readonly ask: "part"; readonly question: string; readonly key: string; readonly want: Part }
  | { readonly ask: "cancel"; readonly question: string };

export type Message =
  | { readonly rows: readonly Row[]; readonly whole: boolean }
  | { readonly answer: string; readonly error?: string }
  | { readonly progress: string; readonly stage: string };

const STATES: readonly string[] = ["running", "paused", "done", "failed"];

/** A kernel's message, or null. A kernel can run any code, so its messages are checked. */
export function message(data: unknown): Message | null {
  if (!isObject(data)) return null;
  if (typeof data["answer"] === "string") {
    return { answer: data["answer"], ...(typeof data["error"] === "string" ? { error: data["error"] } : {}) };
  }
  if (typeof data["progress"] === "string") return { progress: data["progress"], stage: String(data["stage"]) };
  const rows = data["rows"];
  if (!Array.isArray(rows)) return null;
  return { rows: rows.filter(isRow), whole: data["whole"] === true };
}

function isObject(data: unknown): data is Record<string, unknown> {
  return typeof data === "object" && data !== null;
}

function isRow(data: unknown): data is Row {
  return (
    isObject(data) &&
    ["key", "name", "kind", "stage", "error"].every((name) => typeof data[name] === "string") &&
    ["stages", "elapsed_ms", "started_unix_ms"].every((name) => Number.isFinite(data[name])) &&
    STATES.includes(data["state"] as string)
  );
}
