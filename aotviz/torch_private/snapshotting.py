"""What a snapshot of a graph needs from torch and can't get by public names.

Two tensors share memory when their storages are one C++ object, and that object's address is the only handle on it
that costs no Python object. The operators of an FX graph are recognised by their class, since only they print
themselves in the `aten.add.Tensor` form that people know.
"""

from __future__ import annotations

from operator import attrgetter, methodcaller
from typing import Any

import torch
from torch import fx


def storage_key(tensor: torch.Tensor) -> int:
    """The address of the tensor's storage: equal for two tensors that share memory, while either is alive.

    Raises whatever torch raises for a layout without one storage (sparse, opaque); callers treat that as unknown.
    """
    return int(tensor.untyped_storage()._cdata)


def is_operator(target: Any) -> bool:
    """Whether `str(target)` is the operator's own name, e.g. `aten.add.Tensor`."""
    return isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))


def is_higher_order(target: Any) -> bool:
    """Whether the target is an operator that takes graphs as arguments."""
    return isinstance(target, torch._ops.HigherOrderOperator)


_arguments, _named = attrgetter("_args"), attrgetter("_kwargs")
_meta, _value, _meaning = attrgetter("meta"), methodcaller("get", "val"), methodcaller("get", "desc")


def parts(graph: fx.Graph) -> list[Any]:
    """What an edit of the graph replaces: its nodes, their arguments, values and descriptors.

    `node.args` is a Python property; this reads the attribute behind it, since it looks at every node of a graph
    before and after every stage.
    """
    nodes = list(graph.nodes)
    metas = list(map(_meta, nodes))
    return [
        *nodes,
        *map(_arguments, nodes),
        *map(_named, nodes),
        *map(_value, metas),
        *map(_meaning, metas),
    ]
