// The layers of the drawing: the bytes that are alive at each moment, by kind or by module.

import { goneAt, type Holder, KINDS, type Plan } from "./plan";

export type StackedBy = "kind" | "module";
const MOST_MODULES = 8;
export const REST = "elsewhere"; // in no module, or in one of the small ones

export interface Layer {
  readonly name: string;
  readonly bytes: Float64Array; // per moment
}

/** From the bottom up. */
export function layersOf(plan: Plan, by: StackedBy): Layer[] {
  const names = by === "kind" ? null : modulesOf(plan);
  const layers = new Map<string, Float64Array>();
  const length = plan.moments.length;
  for (const name of names?.order ?? KINDS) layers.set(name, new Float64Array(length + 1));
  for (const one of plan.holders) {
    const bytes = layers.get(names ? names.nameOf(one) : one.kind)!;
    const gone = goneAt(one);
    bytes[one.madeAt]! += one.nbytes;
    if (gone <= length) bytes[gone]! -= one.nbytes;
  }
  return [...layers].flatMap(([name, changes]) => {
    const bytes = changes.subarray(0, length);
    let [sum, any] = [0, false];
    for (let at = 0; at < length; at++) {
      bytes[at] = sum += bytes[at]!;
      any ||= sum > 0;
    }
    return any ? [{ name, bytes }] : [];
  });
}

/** The module of a storage: of the node that makes it; of a parameter or buffer, from its name. */
export function moduleOf({ maker }: Holder): string {
  if (maker.op === "p") return maker.descriptor.includes(".") ? maker.descriptor.replace(/\.[^.]*$/, "") : "";
  return maker.modules[maker.modules.length - 1]?.path ?? "";
}

/** Modules at the depth that has most of them, but at most MOST_MODULES with a name; layers of a list are one. */
function modulesOf({ holders, peak }: Plan): { order: readonly string[]; nameOf: (holder: Holder) => string } {
  const paths = new Map(holders.map((one) => [one, moduleOf(one).split(".")]));
  const at = (depth: number) => (one: Holder) =>
    paths.get(one)!.slice(0, depth).join(".").replace(NUMBERS, "$1*") || REST;
  let best = { order: [REST], nameOf: (_: Holder): string => REST };
  for (let depth = 1; depth <= 4; depth++) {
    const nameOf = at(depth);
    const sums = new Map<string, number>();
    for (const one of holders)
      if (one.madeAt <= peak && peak < goneAt(one)) sums.set(nameOf(one), (sums.get(nameOf(one)) ?? 0) + one.nbytes);
    const order = [...sums].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    const named = order.filter((name) => name !== REST).slice(0, MOST_MODULES);
    if (depth > 1 && order.length > MOST_MODULES + 1) break;
    const known = new Set(named);
    best = { order: [...named, REST], nameOf: (one) => (known.has(nameOf(one)) ? nameOf(one) : REST) };
  }
  return best;
}

/** The numbers of the layers in a path: `blocks.3.attn` is `blocks.*.attn`. */
export const NUMBERS = /(^|\.)\d+(?=\.|$)/g;
