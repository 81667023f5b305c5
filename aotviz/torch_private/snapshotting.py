"""What a snapshot of a graph needs from torch and can't get by public names.

Two tensors share memory when their storages are one C++ object, and that object's address is the only handle on it
that costs no Python object. The operators of an FX graph are recognised by their class, since only they print
themselves in the `aten.add.Tensor` form that people know.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import fx

storage_key: Callable[[torch.Tensor], int] = torch._C._storage_address
"""The address of a tensor's storage: equal for two tensors that share memory, while either is alive.

Raises whatever torch raises for a layout without one storage (sparse, opaque); callers treat that as unknown.
"""


OPERATOR = torch._ops.OpOverload
"""The type of targets that have a schema: their arguments are tensors, numbers, texts and lists of them."""


def device(tensor: torch.Tensor) -> torch.device:
    """Where the tensor is, or, of a fake one, would be. A fake one's own `device` asks first who is asking."""
    return getattr(tensor, "fake_device", None) or tensor.device


def is_operator(target: Any) -> bool:
    """Whether `str(target)` is the operator's own name, e.g. `aten.add.Tensor`."""
    return isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))


def is_higher_order(target: Any) -> bool:
    """Whether the target is an operator that takes graphs as arguments."""
    return isinstance(target, torch._ops.HigherOrderOperator)


@dataclass(frozen=True)
class Parts:
    """What makes up a graph, by columns of one entry a node; an edit of the graph replaces some of it.

    FX makes new `args` and `kwargs` at each edit, so they can be compared by identity. Holding them keeps their
    addresses from being given to others meanwhile.
    """

    nodes: list[Any]
    args: list[tuple[Any, ...]]
    kwargs: list[dict[str, Any]]
    values: list[Any]  # meta["val"]
    descriptors: list[Any]  # meta["desc"]

    @classmethod
    def of(cls, graph: fx.Graph) -> Parts:
        """Reads the attributes behind Node's properties: every graph is read before and after every stage."""
        nodes: list[Any] = list(graph.nodes)
        metas = [node.meta for node in nodes]
        return cls(
            nodes,
            [node._args for node in nodes],
            [node._kwargs for node in nodes],
            [meta.get("val") for meta in metas],
            [meta.get("desc") for meta in metas],
        )

    def same_as(self, other: Parts) -> bool:
        """Whether both are of one graph in one state."""
        columns = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return all(len(mine) == len(theirs) and all(map(operator.is_, mine, theirs)) for mine, theirs in columns)
