// The user's values of nodes (`Recording.paint`) in one graph: which nodes have one, in which steps numbers are shown,
// and how a value reads. The steps of a colour are light to dark, so they differ without colour too, and the drawing
// and the table write each value beside its colour.

import { thousands } from "../../format";
import type { Graph } from "../../graph";
import type { Painting } from "../../wire";

export const STEPS = 5; // of one colour
export const ZERO = 2 * STEPS; // after the steps of positive and of negative numbers
export const NOT_A_NUMBER = ZERO + 1;
export const INFINITE = ZERO + 2;

const WIDE = 100; // times the smallest number: from here on the steps are of equal ratio

export type Value = number | string;

export interface Painted {
  readonly of: readonly (Value | undefined)[]; // by node
  readonly missing: readonly number[]; // positions of the painting's names that this graph does not have
}

/** The values of a graph's nodes. */
export function valuesIn(painting: Painting, graph: Graph, stage: string): Painted {
  const nodes = new Map(graph.nodes.map(({ name, index }) => [name, index]));
  const isMeant = meant(painting, graph, stage);
  const of = new Array<Value | undefined>(graph.nodes.length).fill(undefined);
  const missing: number[] = [];
  painting.names.forEach((name, i) => {
    const node = isMeant(i) ? nodes.get(name) : undefined;
    const value = valueAt(painting, i);
    if (node === undefined || value === undefined) missing.push(i);
    else of[node] = value;
  });
  return { of, missing };
}

/** Whether the value at a position is of this graph of this stage. */
function meant({ stages, graphs }: Painting, { role }: Graph, stage: string): (i: number) => boolean {
  return (i) => ["", stage].includes(stages[i] ?? "") && ["", role].includes(graphs[i] ?? "");
}

/** The value of one node, in words; "" if it has none. */
export function valueOf(painting: Painting, graph: Graph, stage: string, name: string): string {
  const isMeant = meant(painting, graph, stage);
  const value = valueAt(
    painting,
    painting.names.findIndex((other, i) => other === name && isMeant(i)),
  );
  return value === undefined ? "" : shown(value, painting.unit);
}

export function valueAt({ numbers, texts }: Painting, i: number): Value | undefined {
  return numbers[i] ?? texts[i];
}

/** `3.2 µs`, `NaN`, `−∞`; a category as it is. */
export function shown(value: Value, unit: string): string {
  if (typeof value === "string") return value;
  return unit && Number.isFinite(value) ? `${number(value)} ${unit}` : number(value);
}

function number(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace("e+", "e").replace("-", "−");
  const rounded = Number.isInteger(value) ? value : Number(value.toPrecision(size >= 100 ? 4 : 3));
  return `${value < 0 ? "−" : ""}${thousands(Math.abs(rounded))}`;
}

export interface Scale {
  readonly said: string; // "equal ratios" or ""
  colour(value: number): number;
  /** What each step that occurs is for, from the smallest number to the largest. */
  legend(values: readonly number[]): { colour: number; text: string; count: number }[];
}

/** Steps for some numbers: of equal size, or of equal ratio if the numbers are far apart. */
export function scaleOf(values: readonly number[], unit: string): Scale {
  const finite = values.filter(Number.isFinite);
  const signed = finite.some((value) => value < 0);
  const sizes = finite.map(Math.abs).filter((size) => size > 0);
  const most = sizes.reduce((a, b) => Math.max(a, b), 0);
  const smallest = sizes.reduce((a, b) => Math.min(a, b), most);
  const ratio = most >= WIDE * smallest && smallest > 0;
  const apart = ratio || signed || finite.includes(0); // zero has its own colour
  const least = apart && !ratio ? 0 : smallest;
  const edge = (step: number): number =>
    ratio ? least * (most / least) ** (step / STEPS) : least + ((most - least) * step) / STEPS;
  const stepOf = (size: number): number => {
    const share = ratio ? Math.log(size / least) / Math.log(most / least) : (size - least) / (most - least);
    return Number.isFinite(share) ? Math.max(0, Math.min(STEPS - 1, Math.floor(STEPS * share))) : STEPS - 1;
  };
  const colour = (value: number): number => {
    if (Number.isNaN(value)) return NOT_A_NUMBER;
    if (!Number.isFinite(value)) return INFINITE;
    if (value === 0 && apart) return ZERO;
    return stepOf(Math.abs(value)) + (value < 0 ? STEPS : 0);
  };
  const range = (step: number, sign: 1 | -1): string => {
    const [from, to] = [sign * edge(step), sign * edge(step + 1)];
    return from === to ? shown(from, unit) : `${number(Math.min(from, to))} to ${shown(Math.max(from, to), unit)}`;
  };
  return {
    said: ratio ? "steps of equal ratio" : "",
    colour,
    legend(all) {
      const up = Array.from({ length: STEPS }, (_, step) => ({ colour: step, text: range(step, 1) }));
      const down = Array.from({ length: STEPS }, (_, step) => ({ colour: STEPS + step, text: range(step, -1) }));
      const infinite = [...new Set(all.filter((value) => Math.abs(value) === Infinity))].map(number).join(", ");
      const entries = [
        ...down.reverse(),
        { colour: ZERO, text: shown(0, unit) },
        ...up,
        { colour: INFINITE, text: infinite },
        { colour: NOT_A_NUMBER, text: "NaN" },
      ];
      const counts = new Map<number, number>();
      for (const value of all) counts.set(colour(value), (counts.get(colour(value)) ?? 0) + 1);
      return entries.flatMap((entry) => {
        const count = counts.get(entry.colour);
        return count ? [{ ...entry, count }] : [];
      });
    },
  };
}

/** What a closed module shows: NaN if a node has it, else the largest number (or its negative), or the sum. */
export function together(values: readonly number[], groups: string): number | undefined {
  if (!values.length) return undefined;
  if (values.some(Number.isNaN)) return NaN;
  return groups === "sum"
    ? values.reduce((a, b) => a + b, 0)
    : values.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a));
}
