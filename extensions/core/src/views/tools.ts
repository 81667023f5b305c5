// What a view that is loaded later shares with the page: the words, and what one view tells another. A copy of these in
// the later bundle would have state of its own.

export { notYet } from "./absent";
export { onBoard, showRow, showTensor } from "./aliasing/asked";
export { chip, codeText, reselect, table } from "./table";
export { notesAbout, showLines } from "./wrapper/lines";
export { explained } from "../terms";
