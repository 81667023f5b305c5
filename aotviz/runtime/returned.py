"""Where the results of a compiled graph differ from eager's: version counters, views without a base, one for two."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import GraphCall, Slot, Split
from aotviz.runtime.codegen import Source
from aotviz.torch_private import operators, runtime
from aotviz.tracing import functional


def versions(source: Source, call: GraphCall) -> None:
    """Write the line that sets the version counters of new results to eager's, where they differ.

    A functional graph writes nothing in place, but a factory function called as an operator counts one write, and the
    operators that a higher-order operator runs count those of their kernels.
    """
    nodes = _outputs(call)
    shared = {functional.storage(v) for v in _tensors(graphs.placeholders(_forward(call)))}
    wanted: list[tuple[int, int]] = []
    for position, (slot, node) in enumerate(zip(call.slots, nodes, strict=False)):
        value = node.meta.get("val") if isinstance(node, fx.Node) else None
        if slot.version is None or not isinstance(value, torch.Tensor) or functional.storage(value) in shared:
            continue
        has_counted = not node.all_input_nodes or operators.is_higher_order(_made_by(node).target)
        if slot.version or has_counted:
            wanted.append((position, slot.version))
    if wanted:
        setter = source.bind("set_versions", runtime.set_versions)
        tensors = "".join(f"out[{position}], " for position, _ in wanted)
        counts = "".join(f"{count}, " for _, count in wanted)
        source.line(f"{setter}(({tensors}), ({counts}))", "set the version counters that these results have in eager")


def _tensors(nodes: list[fx.Node]) -> list[torch.Tensor]:
    return [value for value in graphs.values(nodes) if isinstance(value, torch.Tensor)]


def is_returned_view(graph: GraphCall, slot: Slot, value: str) -> bool:
    """Whether the graph computes a result as a view, while eager returns a tensor that is not a view.

    `value` is the expression for a slot of the caller. A subclass is built from its parts, and is not a view.
    """
    if slot.hidden or slot.kind == "mutation" or not value.startswith("out["):
        return False
    node = _outputs(graph)[_position(value)]
    return isinstance(node, fx.Node) and operators.is_view(_made_by(node).target)


def _made_by(node: fx.Node) -> fx.Node:
    """The call whose result, or a part of whose result, a node is."""
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def is_returned_before(graph: GraphCall, call: GraphCall, slot: Slot, value: str) -> bool:
    """Whether a graph has one result for two of eager's, because a compiler removed a view that changes nothing."""
    if slot.hidden or not value.startswith("out["):
        return False
    position, nodes = _position(value), _outputs(graph)
    before = zip(call.slots, nodes[:position], strict=False)
    return any(node is nodes[position] and not other.hidden for other, node in before if isinstance(node, fx.Node))


def _forward(call: GraphCall) -> fx.Graph:
    return (call.forward_module if isinstance(call, Split) else call.graph_module).graph


def _outputs(call: GraphCall) -> list[Any]:
    return graphs.outputs(_forward(call))


def _position(value: str) -> int:
    return int(value[len("out[") : -1])
