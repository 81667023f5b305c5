// What is said about a followed node that this stage's graph does not have: where it went and why, and the nodes from the
// same call or line.

import { type Child, h, quoted } from "../../dom";
import { plural } from "../../format";
import type { Graph, Node } from "../../graph";
import type { State } from "../../state";
import type { StageRecord } from "../../wire";
import { becameIn, type Seen } from "./identity";

const MOST_KIN = 6; // nodes that are named

export function gone(state: State, seen: Seen, graph: Graph): Child[] {
  const { stage, selection, compilation, recording } = state;
  const { node } = seen;
  const { kin, by } = becameIn(recording, seen, compilation.id, graph);
  const within = seen.compilation === compilation.id;
  const link = (text: string, click: () => void): HTMLElement =>
    h("button", { type: "button", class: "link", on: { click } }, text);
  const names = kin.slice(0, MOST_KIN).map((index) => link(graph.nodes[index]!.name, () => state.openNode(index)));
  const place = stage ? `${stage.name}${stage.graphs.size > 1 ? ` (${graph.role})` : ""}` : "this stage";
  const { role, words } = within ? whyGone(state, node) : { role: "", words: "" };
  return [
    h("code", {}, node.name),
    ` is not in ${place}${within ? "" : ` of compilation ${compilation.id}`}. `,
    role && ["It is in the ", link(role, () => state.openNamed(selection.stage, role, node.name)), " graph. "],
    words && [quoted(words), " "],
    kin.length
      ? [
          by === "call" ? "Nodes here from the same call: " : "Nodes here from the same source line: ",
          names.flatMap((button, i) => (i ? [", ", button] : [button])),
          kin.length > MOST_KIN && `, and ${plural(kin.length - MOST_KIN, "other")}`,
          ".",
        ]
      : `This graph has no node from the same ${within ? "call or " : ""}source line.`,
  ];
}

/** Another graph of the stage that has the node; or the stage that removed or first made it, and the reason. */
export function whyGone({ compilation, recording, selection }: State, node: Node): { role: string; words: string } {
  const nothing = { role: "", words: "" };
  if (node.valueIndex < 0) return nothing;
  const { stages } = compilation;
  const roles = stages.map((stage) =>
    [...stage.graphs].flatMap(([role, graph]) =>
      recording.graphValues(compilation, graph).includes(node.valueIndex) ? [role] : [],
    ),
  );
  const elsewhere = roles[selection.stage]?.find((role) => role !== selection.role);
  if (elsewhere) return { role: elsewhere, words: "" };
  const last = roles.findLastIndex((found, i) => i <= selection.stage && found.length > 0);
  if (last < 0) {
    const first = roles.findIndex((found) => found.length > 0);
    return first < 0 ? nothing : { role: "", words: `Stage \`${stages[first]!.name}\` is the first that has it.` };
  }
  const by = stages.find((stage, i) => i > last && i <= selection.stage && replaces(stage, roles[last]!));
  if (!by) return nothing;
  const given = by.evidence.find(({ subject }) => subject === node.name)?.reason;
  const reason = given ?? (node.users.length ? by.summary : "nothing used its value");
  return { role: "", words: `Stage \`${by.name}\` removed it: ${reason.replace(/\.$/, "")}.` };
}

/** Whether a stage has the graph in which a node of these roles would still be. `lower` has only the forward. */
function replaces({ graphs }: StageRecord, roles: readonly string[]): boolean {
  if (roles.includes("dynamo")) return false; // it is traced into other values
  const isWhole = graphs.has("joint") || graphs.has("inference") || (graphs.has("forward") && graphs.has("backward"));
  return isWhole || roles.some((role) => graphs.has(role));
}
