"""A backward for only some of the incoming gradients.

Zeros do not replace a missing gradient: zero times infinity is NaN, and a branch may read freed values. As in eager,
values that depend only on missing gradients are not computed. If such a value is added to another, the sum is the
other; for all other operators it is replaced by zeros, as autograd would do. Both get the strides of the original
value, because the rest of the graph was traced for these, above all each `view`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import groupby
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import effects, graphs
from aotviz.ir.symbolic_sizes import all_concrete, has_hint, hint, statically_equal

_SUM = torch.ops.aten.add.Tensor


def runs(numbers: Sequence[int]) -> list[list[int]]:
    """Ascending numbers, grouped where each follows the one before.

    >>> runs([0, 1, 2, 5])
    [[0, 1, 2], [5]]
    """
    return [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]


def short(numbers: Sequence[int]) -> str:
    """Some ascending numbers as text, with "-" for runs.

    >>> short([0, 1, 2, 5])
    '0-2,5'
    """
    ends = ((run[0], run[-1]) for run in runs(numbers))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends) or "nothing"


def without(module: fx.GraphModule, absent: Set[str]) -> fx.GraphModule:
    """The backward graph `module` without the tangents named `absent`. Results that depend only on these are None, and
    inputs that are no longer read are removed."""
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
    """For each tangent, by name, the tangents that share with it a node that reads saved tensors, often including
    itself. Eager frees what such a node saved after the first gradient, so it could not use the node again."""
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
    """Whether a graph input is an incoming gradient."""
    return node.name.startswith("tangents_")


def tangent_number(node: fx.Node) -> int:
    """The position of an incoming gradient among all, those of a subclass counted by part."""
    return int(node.name.removeprefix("tangents_")) - 1


def _meet(node: fx.Node, gone: set[fx.Node]) -> None:
    absent = [argument for argument in node.all_input_nodes if argument in gone]
    present = [argument for argument in node.all_input_nodes if argument not in gone]
    plain = node.target is _SUM and len(node.args) == 2 and not node.kwargs
    with node.graph.inserting_before(node):
        if plain and len(present) == 1 and _alike(node, present[0]):
            node.replace_all_uses_with(_laid_out(present[0], node))
            return
        for argument in absent:
            value = argument.meta.get("val")
            if isinstance(value, torch.Tensor):
                node.replace_input_with(argument, _zeros(node.graph, argument, value))


def _zeros(graph: fx.Graph, like: fx.Node, value: torch.Tensor) -> fx.Node:
    if not all_concrete((*value.shape, *value.stride())):
        zeros = graph.call_function(torch.ops.aten.zeros_like.default, (like,))
        zeros.meta = {**like.meta}
        return zeros
    options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
    if value.is_contiguous():
        return _call(torch.ops.aten.full.default, (list(value.shape), 0), like, options)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    zeros = _call(torch.ops.aten.full.default, ([extent], 0), like, options)
    return _call(torch.ops.aten.as_strided.default, (zeros, list(value.shape), list(value.stride())), like)


def _laid_out(node: fx.Node, like: fx.Node) -> fx.Node:
    """`node`, or a copy of it with the memory order of `like`, which has the same shape."""
    mine, wanted = node.meta["val"], like.meta["val"]
    numbers = zip(mine.shape, mine.stride(), wanted.stride(), strict=True)
    strides = [(one, other) for size, one, other in numbers if not statically_equal([size], [1])]
    if all(statically_equal([one], [other]) for one, other in strides) or not all(map(has_hint, wanted.stride())):
        return node
    order = sorted(range(wanted.dim()), key=lambda i: -hint(wanted.stride()[i]))
    turned = _call(torch.ops.aten.permute.default, (node, order), like)
    copied = _call(torch.ops.aten.clone.default, (turned,), like, {"memory_format": torch.contiguous_format})
    return _call(torch.ops.aten.permute.default, (copied, [order.index(i) for i in range(wanted.dim())]), like)


def _call(operator: Any, args: tuple[Any, ...], like: fx.Node, options: dict[str, Any] | None = None) -> fx.Node:
    """A node that replaces `like`, with the fake of its result."""
    made = like.graph.call_function(operator, args, options)
    fakes = [arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in args]
    with like.meta["val"].fake_mode:
        made.meta = {**like.meta, "val": operator(*fakes, **(options or {}))}
    return made


def _alike(one: fx.Node, other: fx.Node) -> bool:
    mine, others = one.meta.get("val"), other.meta.get("val")
    if not isinstance(mine, torch.Tensor) or not isinstance(others, torch.Tensor) or mine.dtype != others.dtype:
        return False
    return statically_equal(mine.shape, others.shape)
