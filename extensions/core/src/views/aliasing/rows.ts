// The rows of the board by name, to find those in which the boards of several compilations differ.

import type { CompilationData } from "../../wire";

export const tensorKey = (name: string): string => `tensor ${name}`;
export const writeKey = (number: number, operator: string, name: string): string =>
  `write ${number} ${operator} ${name}`;

/** What each row of the board says, by its key. */
function boardRows({ storages }: CompilationData): Map<string, string> {
  const rows = new Map<string, string>();
  for (const { tensors, writes, nbytes } of storages) {
    for (const tensor of tensors) {
      const { names, node, role, shape, stride, offset, itemsize, view_of, step } = tensor;
      const from = tensors[view_of]?.names[0] ?? "";
      const written = writes.some((write) => tensors[write.tensor] === tensor);
      const place = [names, role, shape, stride, offset, itemsize, from, step, nbytes, written];
      rows.set(tensorKey(names[0] ?? node), JSON.stringify(place));
    }
    writes.forEach(({ tensor, operator, kind, grad_mode }, number) => {
      const { names, node } = tensors[tensor]!;
      rows.set(writeKey(number + 1, operator, names[0] ?? node), JSON.stringify([kind, grad_mode]));
    });
  }
  return rows;
}

/** For each compilation, the keys of the rows that another one lacks, or in which it says something else. */
export function differingRows(compilations: readonly CompilationData[]): ReadonlySet<string>[] {
  const boards = compilations.map(boardRows);
  return boards.map(
    (rows) =>
      new Set([...rows].filter(([key, said]) => boards.some((other) => other.get(key) !== said)).map(([key]) => key)),
  );
}
