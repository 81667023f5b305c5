// Filters and sorts the compilations of a list. It is separate from the view, so that it can be tested alone.

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
  readonly only: "all" | "again" | "failed" | "eager";
  readonly by: keyof typeof ORDERS;
  readonly down: boolean;
}

export const EVERYTHING: Query = { text: "", kind: "", rank: null, only: "all", by: "order", down: false };

const ORDERS = {
  order: (row: Row) => row.position,
  name: (row: Row) => row.head.name,
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
        (only === "all" ||
          (only === "again"
            ? head.because.length > 0
            : head.error !== null && head.error.ran_in_eager === (only === "eager"))) &&
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

function haystack(head: CompilationHead): string {
  const error = head.error ? `${endedAs(head.error)} ${head.error.type} ${head.error.message}` : "";
  return [head.id, head.name, head.kind, head.compile_id, ...head.because, error, ...head.options.values()]
    .join(" ")
    .toLowerCase();
}
