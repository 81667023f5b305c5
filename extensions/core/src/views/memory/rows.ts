// Who holds what at a moment: a row per storage, or per equal storages of equal layers.

import { place } from "../../format";
import { moduleOf, NUMBERS } from "./layers";
import { type Holder, isAlive, type Plan } from "./plan";

const NUMBER = /(?:^|\.)(\d+)(?=\.|$)/; // of a layer
const ODD = 2; // a row is odd if so many times as many equal ones differ from it

export interface Row {
  readonly holders: readonly Holder[]; // in the order in which they are made
  readonly name: string; // with * for the number of a layer
  readonly module: string;
  readonly nbytes: number; // of all
  readonly odd: Row | null; // the row of the equal ones that differ from it
}

/** The largest row first; what differs from equal layers stands below them. */
export function rowsAt(plan: Plan, moment: number): Row[] {
  const alike = new Map<string, Map<string, Holder[]>>(); // by what layers have in common, and by size
  plan.holders.forEach((one, number) => {
    if (!isAlive(one, moment)) return;
    const key = NUMBER.test(moduleOf(one)) ? common(one) : String(number);
    const sizes = alike.get(key) ?? new Map<string, Holder[]>();
    const size = sizeOf(one);
    const same = sizes.get(size);
    if (same) same.push(one);
    else alike.set(key, sizes.set(size, [one]));
  });
  const groups = [...alike.values()].map((sizes) => {
    const [most, ...others] = [...sizes.values()].sort((a, b) => b.length - a.length);
    const first = row(most!, null);
    return [first, ...others.map((those) => row(those, most!.length >= ODD * those.length ? first : null))];
  });
  const total = (rows: readonly Row[]): number => rows.reduce((sum, { nbytes }) => sum + nbytes, 0);
  return groups.sort((a, b) => total(b) - total(a)).flat();
}

function row(holders: readonly Holder[], odd: Row | null): Row {
  const [first] = holders as [Holder];
  const many = holders.length > 1;
  const short = (text: string): string => (many ? text.replace(NUMBERS, "$1*") : text);
  const name = first.maker.descriptor || first.maker.name;
  return {
    holders,
    name: first.maker.op === "p" ? short(name) : many ? name.replace(/_\d+$/, "") : name,
    module: short(moduleOf(first)),
    nbytes: holders.reduce((sum, { nbytes }) => sum + nbytes, 0),
    odd,
  };
}

/** What the storages of equal layers have in common. */
function common(one: Holder): string {
  const { maker, kind } = one;
  const called = maker.op === "p" ? maker.descriptor.replace(NUMBERS, "$1*") : `${maker.target} ${lineOf(one)}`;
  return [kind, one.half, called, moduleOf(one).replace(NUMBERS, "$1*")].join("\n");
}

function sizeOf({ value, nbytes }: Holder): string {
  return [value.dtype, value.shape.join(), nbytes].join();
}

/** `model.py:12` of the line that makes it, or "". */
export function lineOf({ maker: { source } }: Holder): string {
  return source?.file ? place(source.file, source.line) : "";
}

/** The layers that a row is of: "0–31", "0, 2, 5". */
export function layersIn({ holders }: Row): string {
  const found = holders.map((one) => Number(NUMBER.exec(moduleOf(one))?.[1] ?? NaN));
  const numbers = [...new Set(found)].sort((a, b) => a - b);
  if (numbers.length < 2 || numbers.some(Number.isNaN)) return "";
  const runs: number[][] = [];
  for (const number of numbers) {
    const run = runs[runs.length - 1];
    if (run && run[run.length - 1] === number - 1) run.push(number);
    else runs.push([number]);
  }
  return runs.map((run) => (run.length > 1 ? `${run[0]}–${run[run.length - 1]}` : `${run[0]}`)).join(", ");
}
