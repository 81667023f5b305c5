"""A backward for some of the incoming gradients alone.

Zeros in place of a gradient that did not come in are not the same as none: zero times infinity is not a number, and
what a branch would read may be gone. As in eager, what depends on absent gradients only is not computed. Where such a
value meets another, a sum is the other one; for any other operator it is zeros, as autograd would make them there.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.torch_private import effects
from aotviz.torch_private.fakes import statically_equal

_SUM = torch.ops.aten.add.Tensor


def without(module: fx.GraphModule, absent: Set[str]) -> fx.GraphModule:
    """`module`, a backward graph, as it is where the tangents named `absent` don't come in. Results that depend on
    these only are None; inputs that nothing reads any more are gone."""
    made = graphs.copy(module)
    graph = made.graph
    tangents = [node for node in graphs.placeholders(graph) if is_tangent(node)]
    missing = {i for i, node in enumerate(tangents) if node.name in absent}
    depends = graphs.dependencies(graph, tangents)
    output = graphs.output_node(graph)
    gone = {node for node in graph.nodes if node is not output and depends(node) and depends(node) <= missing}
    output.args = (tuple(None if result in gone else result for result in graphs.outputs(graph)),)
    if not any(effects.has_effects(node.target) for node in graph.nodes):
        for node in list(graph.nodes):
            if node is not output and node not in gone and any(i in gone for i in node.all_input_nodes):
                _meet(node, gone)
        for node in reversed(list(graph.nodes)):
            if node in gone and not node.users and node.op != "placeholder":
                graph.erase_node(node)
        graph.eliminate_dead_code()
    for node in graphs.placeholders(graph):
        if not node.users:
            graph.erase_node(node)
    made.recompile()
    return made


def sharing(module: fx.GraphModule) -> dict[str, frozenset[str]]:
    """Of each tangent, by name, those on whose way some node that reads saved tensors is on the way of this one too,
    often itself among them: eager, which frees what it saved the first time, could not go there again."""
    placeholders = graphs.placeholders(module.graph)
    tangents = [node for node in placeholders if is_tangent(node)]
    saved = [n for n in placeholders if not is_tangent(n) and isinstance(n.meta.get("val"), torch.Tensor)]
    on_tangents = graphs.dependencies(module.graph, tangents)
    on_saved = graphs.dependencies(module.graph, saved)

    def reads(node: fx.Node) -> bool:
        return any(on_saved(argument) and not on_tangents(argument) for argument in node.all_input_nodes)

    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    groups = {frozenset(tangents[i].name for i in on_tangents(node)) for node in nodes if reads(node)}
    return {node.name: frozenset[str]().union(*(group for group in groups if node.name in group)) for node in tangents}


def is_tangent(node: fx.Node) -> bool:
    """Whether a graph input is a gradient that comes in."""
    return node.name.startswith("tangents_")


def _meet(node: fx.Node, gone: set[fx.Node]) -> None:
    absent = [argument for argument in node.all_input_nodes if argument in gone]
    present = [argument for argument in node.all_input_nodes if argument not in gone]
    plain = node.target is _SUM and len(node.args) == 2 and not node.kwargs
    if plain and len(present) == 1 and _alike(node, present[0]):
        node.replace_all_uses_with(present[0])
        return
    with node.graph.inserting_before(node):
        for argument in absent:
            value = argument.meta.get("val")
            if isinstance(value, torch.Tensor):
                zeros = _zeros(node.graph, argument, value)
                zeros.meta = {**argument.meta}
                node.replace_input_with(argument, zeros)


def _zeros(graph: fx.Graph, like: fx.Node, value: torch.Tensor) -> fx.Node:
    if not all(isinstance(number, int) for number in (*value.shape, *value.stride())):
        return graph.call_function(torch.ops.aten.zeros_like.default, (like,))
    options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
    return graph.call_function(torch.ops.aten.full.default, (list(value.shape), 0), options)


def _alike(one: fx.Node, other: fx.Node) -> bool:
    mine, others = one.meta.get("val"), other.meta.get("val")
    if not isinstance(mine, torch.Tensor) or not isinstance(others, torch.Tensor) or mine.dtype != others.dtype:
        return False
    return statically_equal(mine.shape, others.shape)
