// Whether this reader has answered the invitation to the tour. The browser remembers it. Where it cannot (a page in a
// sandbox, storage that is switched off), there is no invitation, because it would come back each time.

const KEY = "aotviz.tour";
const ANSWERED = "answered";

export function mayInvite(): boolean {
  try {
    return localStorage.getItem(KEY) !== ANSWERED;
  } catch {
    return false;
  }
}

export function answered(): void {
  try {
    localStorage.setItem(KEY, ANSWERED);
  } catch {
    // Then `mayInvite` is false on the next page too, or the storage is full.
  }
}
