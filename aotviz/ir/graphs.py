"""Functions on graphs as values: they are copied before they are edited."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.symbolic_sizes import all_concrete
from aotviz.torch_private import graph_nodes, operators, pytree
from aotviz.torch_private.modules import graph_module


def copy(module: fx.GraphModule, lazy: bool = True) -> fx.GraphModule:
    """A copy of a graph module, whose nodes can be edited. Constants are shared.

    Unless `lazy`, its Python code is generated at once, and its class is plain `fx.GraphModule`.
    """
    graph = copied(module.graph)
    return graph_module(module, graph, lazy)


def copied(graph: fx.Graph) -> fx.Graph:
    made = operators.empty_copy(graph)
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        new = copies[node] = made.create_node(node.op, node.target, name=node.name, type_expr=node.type)
        new.args = fx.map_arg(node.args, copies.__getitem__)  # `create_node` would flatten them, which takes longer
        if node.kwargs:
            new.kwargs = fx.map_arg(node.kwargs, copies.__getitem__)
        new.meta.update(node.meta)
    return made


def prefix(graph: fx.Graph, length: int) -> fx.Graph:
    """A copy of the first `length` nodes, without the placeholders of tangents, which were inserted later."""
    mapping: dict[fx.Node, fx.Node] = {}
    made = fx.Graph()
    kept = (node for node in graph.nodes if not (node.op == "placeholder" and node.name.startswith("tangents_")))
    for node in itertools.islice(kept, length):
        mapping[node] = made.node_copy(node, mapping.__getitem__)
    return made


def nested(graph_module: fx.GraphModule, inputs: tuple[Any, ...], outputs: Any) -> fx.GraphModule:
    """Make a flat graph take and return nested values of the same structure as the examples."""
    spec = pytree.tree_structure((inputs, {}))
    names = ["primals", "tangents"][: len(inputs)]
    codegen = graph_nodes.nested_codegen(names, spec, pytree.tree_structure(outputs))
    graph_module.graph.set_codegen(codegen)
    graph_module.recompile()
    return graph_module


def inlined(
    module: fx.GraphModule, root: torch.nn.Module, graph: fx.Graph, arguments: Sequence[fx.Node], tag: str
) -> list[Any]:
    """Copy a module's nodes into `graph`, whose constants are attributes of `root`. Returns its results there."""
    made = dict(zip(placeholders(module.graph), arguments, strict=True))
    for node in module.graph.nodes:
        if node in made or node.op == "output":
            continue
        new = made[node] = graph.node_copy(node, made.__getitem__)
        new.meta["partitioner_tag"] = tag
        if node.op == "get_attr":
            names = (f"_inlined_constant_{number}" for number in itertools.count())
            new.target = next(name for name in names if not hasattr(root, name))
            setattr(root, new.target, getattr(module, str(node.target)))
    return [made[result] if isinstance(result, fx.Node) else result for result in outputs(module.graph)]


def alone(graph: fx.Graph, result: fx.Node) -> fx.Graph:
    """A copy of what computes one node of a graph, and of the inputs that this takes."""
    needed = {result}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    made: fx.Graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node in needed:
            copies[node] = made.node_copy(node, copies.__getitem__)
    made.output((copies[result],))
    return made


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    return list(graph.find_nodes(op="placeholder"))


def output_node(graph: fx.Graph) -> fx.Node:
    node = next(iter(reversed(graph.nodes)))
    if node.op != "output":
        raise ValueError("the graph has no output node at its end")
    return node


def outputs(graph: fx.Graph) -> list[Any]:
    """The results of the graph: nodes or constants."""
    returned = output_node(graph).args[0]
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


def set_outputs(graph: fx.Graph, results: Iterable[Any], described: Iterable[Any] | None = None) -> None:
    """Let the graph return `results`; `described` are their descriptors, None until the stage "trace"."""
    output, made = output_node(graph), tuple(results)
    output.args = (made,)
    output.meta["desc"] = [None] * len(made) if described is None else list(described)


def values(nodes: Sequence[Any]) -> tuple[Any, ...]:
    """The fake values of nodes. Constants are returned as they are."""
    return tuple(node.meta.get("val") if isinstance(node, fx.Node) else node for node in nodes)


def is_input_mutation(node: fx.Node) -> bool:
    """Whether a node writes a graph input, the only kind of write that a functional graph may contain."""
    if node.op != "call_function" or node.target is not torch.ops.aten.copy_.default:
        return False
    target = node.args[0]
    return isinstance(target, fx.Node) and target.op == "placeholder"


def fills(graph: fx.Graph, given: fx.Node) -> list[fx.Node]:
    """The nodes that write a graph input, or a view of it, and are not part of what functionalization makes:
    `torch.ops.fsdp.copy_`."""
    return [node for node in graph.nodes if _stays(node) and owner(node.args[0]) is given]


def writes_an_input(node: fx.Node) -> bool:
    """Whether a node writes a graph input in one of the ways that a functional graph may contain."""
    return is_input_mutation(node) or (_stays(node) and owner(node.args[0]).op == "placeholder")


def _stays(node: fx.Node) -> bool:
    return operators.is_operator(node.target) and operators.name(node.target) in operators.STAY_IN_GRAPH


def argument(node: fx.Node, position: int = 0) -> fx.Node:
    """The node that a node takes at a position, where a constant cannot be."""
    found = node.args[position]
    if not isinstance(found, fx.Node):
        raise TypeError(f"argument {position} of {node} is not a node: {found!r}")
    return found


def owner(node: Any) -> Any:
    """The node that owns the memory of a node's value, as far as views show it. A view of a number, such as
    `_conj(1j)` in a gradient, shows none."""
    while isinstance(node, fx.Node):
        source = node.args[0] if node.target is operator.getitem else node
        if not (isinstance(source, fx.Node) and operators.is_view(source.target)):
            break
        if isinstance(source.args[0], (int, float, complex)):
            break
        node = source.args[0]
    return node


def is_view(node: fx.Node) -> bool:
    """Whether a node only shows memory of another one: it is a view, or one item of several views."""
    return owner(node) is not node


def nbytes(value: Any) -> int | None:
    """Bytes of a tensor's elements; None if a size is symbolic or the value is not a tensor."""
    if not isinstance(value, torch.Tensor):
        return None
    return math.prod(value.shape) * value.dtype.itemsize if all_concrete(value.shape) else None


def dependencies(graph: fx.Graph, sources: Sequence[fx.Node]) -> Callable[[Any], frozenset[int]]:
    """A function that returns the `sources` (by position) on which a node depends."""
    empty: frozenset[int] = frozenset()
    known: dict[fx.Node, frozenset[int]] = {node: frozenset({i}) for i, node in enumerate(sources)}
    for node in graph.nodes:
        if node in known:
            continue
        sets = {known[argument] for argument in node.all_input_nodes}
        known[node] = next(iter(sets)) if len(sets) == 1 else empty.union(*sets)
    return lambda node: known.get(node, empty) if isinstance(node, fx.Node) else empty
