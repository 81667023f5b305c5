// Filters and sorts the compilations of a list. It is separate from the view, so that it can be tested alone.

import { called } from "../../called";
import { endedAs } from "../../outcome";
import type { CompilationHead } from "../../wire";

export interface Row {
  readonly position: number; // in the index
  readonly head: CompilationHead;
}

export interface Query {
  readonly text: string; // all of its words must occur
  readonly kind: string; // "" for any
  readonly rank: number | null; // null for any
  readonly only: "all" | "again" | "failed" | "eager" | "hit" | "missed";
  readonly by: keyof typeof ORDERS;
  readonly down: boolean;
}

export const EVERYTHING: Query = { text: "", kind: "", rank: null, only: "all", by: "order", down: false };

const ORDERS = {
  order: (row: Row) => row.position,
  rank: (row: Row) => row.head.rank,
  time: (row: Row) => row.head.elapsed_ns,
  nodes: (row: Row) => row.head.nodes,
  stages: (row: Row) => row.head.stages,
};

export type Order = keyof typeof ORDERS;

export function list(compilations: readonly CompilationHead[], { text, kind, rank, only, by, down }: Query): Row[] {
  const words = text.toLowerCase().match(/rank \d+\b:?|\S+/g) ?? []; // a rank's number belongs to its word
  const order = ORDERS[by];
  return compilations
    .map((head, position) => ({ head, position }))
    .filter(
      ({ head }) =>
        (!kind || head.kind === kind) &&
        (rank === null || head.rank === rank) &&
        chosen(head, only) &&
        words.every((word) =>
          /^rank \d+:?$/.test(word) ? `rank ${head.rank}` === word.replace(":", "") : haystack(head).includes(word),
        ),
    )
    .sort((a, b) => {
      const [x, y] = [order(a), order(b)];
      const way = x < y ? -1 : x > y ? 1 : 0;
      return (down ? -way : way) || a.position - b.position;
    });
}

function chosen({ because, error, cache }: CompilationHead, only: Query["only"]): boolean {
  if (only === "all") return true;
  if (only === "again") return because.length > 0;
  if (only === "hit" || only === "missed") return cache !== null && (cache.outcome === "hit") === (only === "hit");
  return error !== null && error.ran_in_eager === (only === "eager");
}

function haystack(head: CompilationHead): string {
  const error = head.error ? `${endedAs(head.error)} ${head.error.type} ${head.error.message}` : "";
  const cache = head.cache ? `cache ${head.cache.outcome} ${head.cache.words}` : "";
  return [cache, called(head), head.kind, head.compile_id, ...head.because, error, ...head.options.values()]
    .join(" ")
    .toLowerCase();
}
