// How two autograd nodes of a captured backward are related.

import type { VisitRecord } from "../../wire";

export type Relation = "chosen" | "waits" | "feeds"; // the node itself; it waits for the chosen one; it feeds that one

export function relation(visits: readonly VisitRecord[], chosen: number, other: number): Relation | null {
  if (chosen === other) return "chosen";
  if (visits[chosen]!.waits_for.includes(other)) return "feeds";
  return visits[other]!.waits_for.includes(chosen) ? "waits" : null;
}

export interface Edge {
  readonly from: number;
  readonly to: number;
}

/** Each "to waits for from". */
export function edges(visits: readonly VisitRecord[]): Edge[] {
  return visits.flatMap(({ waits_for: some }, to) => some.map((from) => ({ from, to })));
}
