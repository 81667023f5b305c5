// How an unfinished compilation ended. Either it failed, and the caller got the error. Or it was refused, Dynamo's
// graph ran in eager, and the caller got a correct result. This file has the words for both.

import type { ErrorRecord } from "./wire";

/** "failed", or "ran in eager". */
export function endedAs({ ran_in_eager }: ErrorRecord): string {
  return ran_in_eager ? "ran in eager" : "failed";
}

/** The CSS class of the text: only a failure is red. */
export function colourOf({ ran_in_eager }: ErrorRecord): "warn" | "removed" {
  return ran_in_eager ? "warn" : "removed";
}

/** The stage that ended it, with a verb: "metadata failed". */
export function didIn({ ran_in_eager }: ErrorRecord): string {
  return ran_in_eager ? "refused the program" : "failed";
}

/** As one line of a list. */
export function inShort(error: ErrorRecord): string {
  return error.ran_in_eager ? "ran in eager" : `${failedAs(error)} in ${error.stage}`;
}

/** The type of the error, if torch logs it. */
export function failedAs({ type }: ErrorRecord): string {
  return type || "Failed";
}

/** The whole error as text. */
export function inFull(error: ErrorRecord): string {
  return error.ran_in_eager
    ? `ran in eager: ${error.message}`
    : `${failedAs(error)} in ${error.stage}: ${error.message}`;
}
