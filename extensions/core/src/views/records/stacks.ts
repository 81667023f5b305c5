// The stacks under which Dynamo compiled, as one tree: frames that several stacks begin with are there once, and each
// compilation is below the frame that it compiled, with what came of it.

import { functionName } from "../../format";
import type { Rows } from "../../source";
import { type CompilationHead, NONE, type RecordingIndex } from "../../wire";

export type Outcome = "compiled" | "failed" | "ran in eager" | "restarted" | "empty graph";

export interface Compiled {
  readonly position: number; // in the index
  readonly head: CompilationHead;
  readonly outcomes: readonly Outcome[];
}

export interface Frame {
  readonly file: string;
  readonly line: number;
  readonly scope: string; // the function
  readonly code: string;
  readonly below: Frame[];
  readonly compiled: Compiled[];
}

const FRAME = /^\s*File "(.*)", line (\d+)(?:, in (.*))?$/;

/** The frames of a stack as Python prints it, outermost first. */
export function framesOf(stack: string): Pick<Frame, "file" | "line" | "scope" | "code">[] {
  const found: { file: string; line: number; scope: string; code: string }[] = [];
  for (const text of stack.split("\n")) {
    const head = FRAME.exec(text);
    if (head) found.push({ file: head[1]!, line: Number(head[2]), scope: functionName(head[3] ?? ""), code: "" });
    else if (found.length && text.trim() && !found[found.length - 1]!.code) found[found.length - 1]!.code = text.trim();
  }
  return found;
}

/** All compilations that have a stack, below the frames of it. */
export function treeOf({ part, text }: Rows, index: RecordingIndex): Frame[] {
  const roots: Frame[] = [];
  const positions = new Map(index.compilations.map(({ id }, i) => [id, i]));
  const empty = new Set(
    part.metrics
      .filter(({ kind, numbers }) => kind === "compilation" && numbers.get("graph_op_count") === 0)
      .map(({ origin }) => origin.compilation),
  );
  part.stacks.forEach((stack, number) => {
    const position = positions.get(part.compilations[number] ?? "") ?? NONE;
    const head = index.compilations[position];
    if (stack < 0 || !head) return;
    let at: Frame | null = null;
    for (const frame of framesOf(text(stack))) {
      const among: Frame[] = at ? at.below : roots;
      const same = among.find(
        ({ file, line, scope }) => file === frame.file && line === frame.line && scope === frame.scope,
      );
      at = same ?? { ...frame, below: [], compiled: [] };
      if (!same) among.push(at);
    }
    at?.compiled.push({ position, head, outcomes: outcomes(head, empty.has(number)) });
  });
  return roots;
}

function outcomes({ error, attempts }: CompilationHead, isEmpty: boolean): Outcome[] {
  const last: Outcome = error ? (error.ran_in_eager ? "ran in eager" : "failed") : isEmpty ? "empty graph" : "compiled";
  return attempts > 1 ? [last, "restarted"] : [last];
}

/** The tree with only what `keep` accepts. */
export function kept(
  frames: readonly Frame[],
  keep: (compiled: Compiled, under: string) => boolean,
  under = "",
): Frame[] {
  return frames.flatMap((frame) => {
    const path = `${under} ${frame.file}:${frame.line} ${frame.scope} ${frame.code}`;
    const compiled = frame.compiled.filter((one) => keep(one, path));
    const below = kept(frame.below, keep, path);
    return compiled.length || below.length ? [{ ...frame, compiled, below }] : [];
  });
}
