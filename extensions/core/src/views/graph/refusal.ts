// What is shown in place of a drawing that cannot be made, and what the reader can do.

import * as format from "../../format";
import { advice } from "./controls";

export class TooMany extends Error {
  constructor(readonly boxes: number) {
    super();
  }
}

export function boxes(count: number): string {
  return count === 1 ? "1 box" : `${format.thousands(count)} boxes`;
}

export function refusal(error: unknown, again: () => void, closeAll: () => void): HTMLElement {
  const close: [string, () => void] = ["Close all modules", closeAll];
  if (error instanceof TooMany)
    return advice(
      "empty",
      `${boxes(error.boxes)} are too many to draw.`,
      "The outline and the search still show all of them. Close some modules to see the rest as a drawing.",
      close,
    );
  return advice("error", "The graph could not be laid out.", String(error), ["Try again", again], close);
}
