// The bytes that are alive while a node runs, for the colours. What plans them comes with the editor's bundle.

import type { Editor } from "../../editor/types";
import type { Graph } from "../../graph";
import type { Host } from "../../host";
import type { State } from "../../state";

let planned: Editor["alive"] | null = null;

export async function loadAlive(host: Host): Promise<void> {
  planned ??= (await host.editor()).alive;
}

export function aliveIn(state: State, graph: Graph): readonly (number | null)[] {
  return planned?.(state, graph) ?? graph.nodes.map(() => null);
}
