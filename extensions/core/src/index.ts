// The exports of `core` for the packages that show a workbench.

export { fromBase64, unzipped } from "./bytes";
export { decodeRecording, gunzip, RecordingError } from "./decode";
export type { Editor } from "./editor/types";
export type { Host } from "./host";
export type { Ask, Question, Wait } from "./source";
export type { Bookmark } from "./state";
export { mountWorkbench, openKernel, openRecording, type Options, type Workbench } from "./workbench";
export type { RecordingData } from "./wire";
