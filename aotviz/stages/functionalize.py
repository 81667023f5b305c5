"""Where mutations of inputs happen (docs/design/system.md C3).

The trace is functional: the new data of each mutated input is an output of the graph. If nothing can tell the
difference (`MutationType.MUTATED_IN_GRAPH`), the write moves into the graph, as a `copy_` to the input at its end, so
that a compiler can fuse it. Otherwise the wrapper writes the output back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import GraphCall, JointCall, Reason
from aotviz.ir.partition_functions import FORWARD_ONLY


def run(call: GraphCall) -> GraphCall:
    """GraphCall -> GraphCall, or JointCall -> JointCall."""
    inside = set(call.meta.in_graph_mutated_indices)
    written = ((slot.descriptor, slot.index in inside) for slot in call.slots if slot.kind == "mutation")
    evidence = tuple(Reason(str(d), f"written by the {'graph itself' if own else 'wrapper'}") for d, own in written)
    if not inside:
        return replace(call, evidence=evidence)
    module = graphs.copy(call.graph_module)
    inputs = graphs.placeholders(module.graph)
    output = graphs.output_node(module.graph)
    results = graphs.outputs(module.graph)
    kept = []
    for position, slot in enumerate(call.slots):
        if slot.kind == "mutation" and slot.index in inside:
            _write(module.graph, output, inputs[slot.index], results[position])
        else:
            kept.append(position)
    gradients = results[len(call.slots) :]
    graphs.set_outputs(module.graph, (*(results[position] for position in kept), *gradients))
    place = {old: new for new, old in enumerate(kept)}
    changes: dict[str, Any] = {"slots": tuple(call.slots[position] for position in kept)}
    if isinstance(call, JointCall):
        changes["tangents"] = tuple(replace(t, slot=place[t.slot]) for t in call.tangents)
        changes["hooked_results"] = tuple(
            replace(one, slots=tuple(place[i] for i in one.slots)) for one in call.hooked_results
        )
    return replace(call, evidence=evidence, graph_module=module, **changes)


def _write(graph: fx.Graph, output: fx.Node, target: fx.Node, value: Any) -> None:
    if value is target:
        return
    with graph.inserting_before(output):
        node = graph.call_function(torch.ops.aten.copy_.default, (target, value))
    node.meta["val"] = target.meta["val"]
    node.meta["partitioner_tag"] = FORWARD_ONLY  # partitioners end the forward after the last "is_forward"
    if isinstance(value, fx.Node) and "stack_trace" in value.meta:
        node.meta["stack_trace"] = value.meta["stack_trace"]
