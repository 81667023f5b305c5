// Everything that is known about the selected node. Names of other nodes are buttons that select them. Links lead to
// the same value in other stages.

import { type Child, h, replace } from "../../dom";
import * as format from "../../format";
import type { Graph, Node } from "../../graph";
import type { State } from "../../state";
import type { ValueRecord } from "../../wire";
import { call } from "../../code/python";
import { valueOf } from "../graph/painting";
import type { Context, Mounted } from "../view";

const MANY = 12; // users shown before "and n more"
const OPS: Record<string, string> = {
  p: "placeholder",
  f: "call_function",
  m: "call_module",
  c: "call_method",
  a: "get_attr",
  o: "output",
};

export function facts(parent: HTMLElement, { state }: Context): Mounted {
  const update = (): void => {
    const { node, graph } = state;
    const selected = state.selection.nodes.length;
    parent.hidden = !node;
    if (!node || !graph) return void replace(parent);
    replace(
      parent,
      h(
        "header",
        {},
        h("h3", {}, node.name),
        h(
          "button",
          { type: "button", class: "close", "aria-label": "Close", on: { click: () => state.openNode(-1) } },
          "×",
        ),
      ),
      h(
        "p",
        { class: "tags" },
        h("span", { class: `lane ${node.backward ? "backward" : "forward"}` }, node.backward ? "backward" : "forward"),
        OPS[node.op] ?? node.op,
      ),
      selected > 1 && h("p", { class: "tags" }, `one of ${format.thousands(selected)} selected nodes`),
      h(
        "pre",
        { class: "call" },
        node.op === "p" || node.op === "o" ? node.target : call(node, graph, state.recording),
      ),
      h(
        "dl",
        {},
        ...state.paintings.flatMap((one) => fact(one.label, valueOf(one, graph, state.stage?.name ?? "", node.name))),
        ...valueFacts(state, node.value, ""),
        ...nodeFacts(state, graph, node),
      ),
      elsewhere(state, node),
    );
    parent.scrollTop = 0;
  };
  update();
  return { update, destroy() {} };
}

function fact(name: string, content: Child): Child[] {
  return content === "" || content === null || content === false ? [] : [h("dt", {}, name), h("dd", {}, content)];
}

function valueFacts(state: State, value: ValueRecord | null, prefix: string): Child[] {
  if (!value) return [];
  const { recording, compilation } = state;
  if (value.kind === "tuple") {
    return value.parts.slice(0, MANY).flatMap((part, i) => {
      const record = compilation.values[part];
      return record && record.kind !== "tuple" ? valueFacts(state, record, `${prefix}[${i}] `) : [];
    });
  }
  if (value.kind !== "tensor") return fact(prefix + value.kind, h("code", {}, recording.text(value.text)));
  return [
    ...fact(`${prefix}dtype`, h("code", {}, recording.text(value.dtype).replace(/^torch\./, ""))),
    ...fact(`${prefix}shape`, h("code", {}, format.shape(value.shape))),
    ...fact(`${prefix}stride`, value.stride.length > 0 && h("code", {}, format.shape(value.stride))),
    ...fact(`${prefix}offset`, value.offset !== 0 && h("code", {}, value.offset)),
    ...fact(`${prefix}device`, recording.text(value.device)),
    ...fact(`${prefix}autograd`, value.requires_grad && "requires grad"),
  ];
}

function nodeFacts(state: State, graph: Graph, node: Node): Child[] {
  const innermost = node.modules[node.modules.length - 1];
  const sharing =
    node.value && node.value.storage >= 0
      ? graph.nodes
          .filter((other) => other !== node && other.value?.storage === node.value!.storage)
          .map((other) => other.index)
      : [];
  const twins =
    node.sequence >= 0
      ? graph.nodes
          .filter((other) => other.sequence === node.sequence && other.backward !== node.backward)
          .map((other) => other.index)
      : [];
  return [
    ...fact("descriptor", node.descriptor && h("code", {}, node.descriptor)),
    ...fact(
      "module",
      innermost !== undefined && [h("code", {}, innermost.path || "(root)"), innermost.type && ` ${innermost.type}`],
    ),
    ...fact(
      "source",
      node.source && [
        node.source.file &&
          h(
            "span",
            { title: node.source.file },
            format.place(node.source.file, node.source.line),
            node.source.scope && ` in ${node.source.scope}`,
          ),
        node.source.code && h("pre", {}, node.source.code),
      ],
    ),
    ...fact("reads", links(state, graph, node.inputs)),
    ...fact(
      "users",
      node.users.length ? links(state, graph, node.users) : node.op === "o" ? "" : "none: its value is not used",
    ),
    ...fact("same memory", links(state, graph, sharing)),
    ...fact(node.backward ? "forward nodes" : "backward nodes", links(state, graph, twins)),
  ];
}

function links(state: State, graph: Graph, nodes: readonly number[]): Child {
  if (!nodes.length) return "";
  const buttons = nodes.slice(0, MANY).map((index) => {
    const other = graph.nodes[index]!;
    return h(
      "button",
      { type: "button", class: "link", title: other.target, on: { click: () => state.openNode(index) } },
      other.name,
    );
  });
  return h(
    "span",
    { class: "links" },
    buttons,
    nodes.length > MANY && h("span", { class: "muted" }, ` and ${nodes.length - MANY} more`),
  );
}

/** The other stages that have the same value. */
function elsewhere(state: State, node: Node): Child {
  if (node.valueIndex < 0) return null;
  const { compilation, recording, selection } = state;
  // A graph that stages share counts once.
  const seen = new Set([compilation.stages[selection.stage]?.graphs.get(selection.role)]);
  const found = compilation.stages.flatMap((stage, i) =>
    [...stage.graphs].flatMap(([role, graph]) => {
      if (seen.has(graph)) return [];
      seen.add(graph);
      if (!recording.graphValues(compilation, graph).includes(node.valueIndex)) return [];
      const same =
        recording.graph(compilation, stage, role)?.nodes.filter((other) => other.valueIndex === node.valueIndex) ?? [];
      return [{ stage, i, role, name: (same.find(({ name }) => name === node.name) ?? same[0])?.name ?? "" }];
    }),
  );
  if (!found.length) return null;
  return h(
    "section",
    {},
    h("h4", {}, "The same value in other stages"),
    h(
      "ul",
      {},
      found.map(({ stage, i, role, name }) =>
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", class: "link", on: { click: () => state.openStage(i, role) } },
            stage.graphs.size > 1 ? `${stage.name} · ${role}` : stage.name,
          ),
          name && name !== node.name && h("code", {}, name),
        ),
      ),
    ),
  );
}
