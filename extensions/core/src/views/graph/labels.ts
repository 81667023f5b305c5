// The text of a box and of a row of the outline, and the size that a box needs.

import * as format from "../../format";
import { type Marks, marksOf } from "../../layout/marks";
import type { Box } from "../../layout/picture";
import type { Size } from "../../layout/placed";
import { userName } from "../../descriptors";
import type { Graph, Node } from "../../graph";
import type { State } from "../../state";
import { groupDetail, type Row } from "./outline";

export interface Label {
  readonly title: string;
  readonly detail: string;
  readonly size: Size;
  readonly kind: "module" | "input" | "output" | "node";
}

const MOST = 30; // characters in a line
const LETTER = 6.95; // pixels, of the 11.5 px monospace that paint.ts uses
const DETAIL_LETTER = 6.25;

export function label(state: State, graph: Graph, box: Box): Label {
  if (box.group) {
    const { type, size } = box.group;
    return sized(
      "module",
      line(box.group.label),
      line([type !== box.group.label && type, format.plural(size, "node")].filter(Boolean).join(" · ")),
    );
  }
  const node = graph.nodes[box.node]!;
  if (node.op === "o") return sized("output", box.lane === "backward" ? "gradients" : "outputs", "");
  const type = format.value(state.recording, node.value, state.compilation.values);
  return sized(node.op === "p" || node.op === "a" ? "input" : "node", line(named(node, box.parent.path)), line(type));
}

/** A node's name as in the code, such as `mul_1`; of an input, the user's name. */
function named(node: Node, within = ""): string {
  return node.op === "p" || node.op === "o" ? nodeTitle(node, within) : node.name;
}

/** What the marks of a box say, in words. */
export function markWords({ saved, gradients, returned, written, unread }: Box["marks"]): string[] {
  return [
    saved > 0 && `saves ${format.plural(saved, "value")} for the backward`,
    gradients > 0 && `returns ${format.plural(gradients, "gradient")}`,
    returned > 0 && `returns ${format.plural(returned, "result")}`,
    written > 0 && `${format.plural(written, "in-place write")}`,
    unread > 0 && `${format.plural(unread, "value")} that nothing reads`,
  ].filter((words) => words !== false);
}

/** What the marks of a node say. */
function nodeMarks(marks: Marks, node: number): string[] {
  return [
    marks.returned.has(node) && "returned",
    marks.written.has(node) && "in-place write",
    marks.unread.has(node) && "nothing reads it",
  ].filter((words) => words !== false);
}

/** The texts of the rows of an outline. */
export function rowTexts(state: State, graph: Graph): (row: Row) => { label: string; detail: string; title: string } {
  const marks = marksOf(graph);
  return ({ group, node: index, open }) => {
    if (group)
      return {
        label: group.parent ? group.label : group.lane,
        detail: groupDetail(group),
        title: `${group.path || group.label}: ${open ? "close" : "open"}`,
      };
    const node = graph.nodes[index]!;
    const type = format.value(state.recording, node.value, state.compilation.values);
    const said = nodeMarks(marks, index);
    return {
      label: named(node),
      detail: [type, ...said].filter(Boolean).join(" · "),
      title: [`${node.name} = ${node.target}${type && `: ${type}`}`, ...said].join("\n"),
    };
  };
}

/** `mm` for aten.mm.default; for a parameter its name within its module; else the node's name. */
export function nodeTitle(node: Node, around = ""): string {
  if (node.op === "p") {
    const path = userName(node.descriptor) || node.name;
    return around && path.startsWith(`${around}.`) ? path.slice(around.length + 1) : path;
  }
  if (node.op === "o") return "output";
  if (node.op === "a" || node.op === "m") return node.target;
  return operator(node.target) || node.name;
}

/** `mm` of "aten.mm.default" and of "torch.ops.aten.mm.default"; the last word of anything else. */
export function operator(target: string): string {
  const parts = target.split(".");
  const namespaced = parts.length >= 3 && /^(torch\.ops\.)?\w+\.\w+\.\w+$/.test(target);
  return namespaced ? parts[parts.length - 2]! : parts[parts.length - 1]!;
}

/** The text in at most so many letters; of a path, `end` keeps the last ones. */
export function clip(text: string, most = MOST, end = false): string {
  if (text.length <= most) return text;
  return end ? `…${text.slice(text.length - most + 1)}` : `${text.slice(0, most - 1)}…`;
}

function line(text: string): string {
  return clip(text.slice(0, 4 * MOST).replace(/\s+/g, " "));
}

function sized(kind: Label["kind"], title: string, detail: string): Label {
  const width =
    Math.max(title.length * LETTER * (kind === "module" ? 1.04 : 1), detail.length * DETAIL_LETTER, 34) +
    (kind === "module" ? 38 : 26);
  return { kind, title, detail, size: { width: Math.ceil(width), height: detail ? 40 : 26 } };
}
