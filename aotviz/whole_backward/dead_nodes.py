"""Removes what computes nothing that is read: sizes of gradients that are not needed, checks of no results."""

from __future__ import annotations

from dataclasses import replace

import torch.fx as fx

from aotviz.ir import effects
from aotviz.ir.forms import Reason
from aotviz.torch_private import backward_capture, operators
from aotviz.whole_backward import steps
from aotviz.whole_backward.captured import WholeBackward


def run(call: WholeBackward) -> WholeBackward:
    """WholeBackward -> WholeBackward."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(call.graph, made))
    before = len(graph.nodes)
    graph.eliminate_dead_code(lambda node: node.op != "call_function" or has_effects(node))
    count = before - len(graph.nodes)
    reasons = (Reason("dead code", f"{count} unused node{'s' if count > 1 else ''} removed"),) if count else ()
    return replace(call, graph=graph, evidence=reasons)


def has_effects(node: fx.Node) -> bool:
    """Whether a step does more than compute its result: it may call Python of the user's, or write."""
    target = node.target
    if operators.is_operator(target):
        return operators.writes(target)
    if operators.is_higher_order(target):
        return effects.has_effects(target)
    if node.meta.get("is_copied"):  # from a graph: arithmetic of sizes
        return False
    return not (steps.is_in_a_graph(target) or backward_capture.is_pure(target))
