// How a compilation ended that did not come to its end: it failed, and the caller got the error; or it was refused and
// runs in eager, as Dynamo captured it, and the caller got a right result. What is said of the two is told apart here.

import type { ErrorRecord } from "./wire";

/** "failed", or "ran in eager". */
export function endedAs({ ran_in_eager }: ErrorRecord): string {
  return ran_in_eager ? "ran in eager" : "failed";
}

/** The class of what is said: red for a failure alone. */
export function colourOf({ ran_in_eager }: ErrorRecord): "warn" | "removed" {
  return ran_in_eager ? "warn" : "removed";
}

/** Of the stage that ended it, as the subject's verb: "metadata failed". */
export function didIn({ ran_in_eager }: ErrorRecord): string {
  return ran_in_eager ? "refused the program" : "failed";
}

/** In one line of a list. */
export function inShort(error: ErrorRecord): string {
  return error.ran_in_eager ? "ran in eager" : `${error.type} in ${error.stage}`;
}

/** Whole, as a text. */
export function inFull(error: ErrorRecord): string {
  return error.ran_in_eager ? `ran in eager: ${error.message}` : `${error.type} in ${error.stage}: ${error.message}`;
}
