// What is said about a followed node that this stage's graph does not have: the nodes from the same call or line.

import { type Child, h } from "../../dom";
import type { Graph, Node } from "../../graph";
import type { State } from "../../state";
import { became } from "./identity";

export function gone(state: State, node: Node, graph: Graph): Child[] {
  const { kin, by } = became(node, graph);
  const { stage } = state;
  const buttons = kin.map((index) =>
    h(
      "button",
      { type: "button", class: "link", on: { click: () => state.openNode(index) } },
      graph.nodes[index]!.name,
    ),
  );
  const links = buttons.flatMap((button, i) => (i ? [", ", button] : [button]));
  const place = stage ? `${stage.name}${stage.graphs.size > 1 ? ` (${graph.role})` : ""}` : "this stage";
  return [
    h("code", {}, node.name),
    ` is not in ${place}. `,
    kin.length
      ? [by === "call" ? "Nodes here from the same call: " : "Nodes here from the same source line: ", links, "."]
      : "This graph has no node from the same call or source line.",
  ];
}
