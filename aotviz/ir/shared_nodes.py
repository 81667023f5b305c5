"""Compute the common subexpressions of a graph once.

torch's min-cut partitioner begins with such a pass. That pass asks Inductor which operators write, and so imports a
hundred modules. This takes a second of the first compilation, which is wasted if the graph does not go to Inductor.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.multiprocessing.reductions import StorageWeakRef

from aotviz.ir import graphs
from aotviz.torch_private import operators

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def share(graph: fx.Graph) -> int:
    """Merge equal calls of an operator, in place. Returns the number of calls that were removed.

    These are not merged: random numbers, uninitialized memory, values in the memory of an output (two outputs stay two
    tensors), calls with a write between them, operators that run graphs, and numbers that are read from a tensor.

    >>> import torch
    >>> module = torch.fx.symbolic_trace(lambda x: x.sin() + x.sin())
    >>> share(module.graph)  # methods of tensors, as this tracer records them, are no operators
    0
    """
    returned = {_storage(node) for node in graphs.output_node(graph).all_input_nodes} - {None}
    seen: dict[Any, fx.Node] = {}
    writes = before = len(graph.nodes)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        writes += graphs.writes(node)
        if _is_its_own(node) or _storage(node) in returned:
            continue
        key = (writes, node.target, _key(node.args), _key(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
    return before - len(graph.nodes)


def _is_its_own(node: fx.Node) -> bool:
    value = node.meta.get("val")
    read_off = isinstance(value, _SYMBOLIC) and bool(free_unbacked_symbols(value))
    packet = getattr(node.target, "overloadpacket", None)
    with_graphs = not operators.is_operator(node.target) and any(n.op == "get_attr" for n in node.all_input_nodes)
    return read_off or with_graphs or packet is torch.ops.aten.empty or operators.is_random(node.target)


def _storage(node: fx.Node) -> Any:
    """The storage of a node's value, or None."""
    value = node.meta.get("val")
    try:
        return StorageWeakRef(value.untyped_storage()) if isinstance(value, torch.Tensor) else None
    except NotImplementedError:
        return None


def _key(argument: Any) -> Any:
    """A hashable key that is equal for arguments that mean the same. 1 and 1.0 differ, and so do 0.0 and -0.0."""
    if isinstance(argument, (tuple, list)):
        return type(argument), tuple(map(_key, argument))
    if isinstance(argument, dict):
        return tuple((name, _key(value)) for name, value in argument.items())
    if isinstance(argument, slice):
        return slice, _key(argument.start), _key(argument.stop), _key(argument.step)
    if isinstance(argument, float):
        return float, argument.hex()
    if isinstance(argument, _SYMBOLIC):
        return type(argument), id(argument.node)
    try:
        hash(argument)
    except TypeError:
        return id(argument)
    return type(argument), argument
