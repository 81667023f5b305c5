"""What a snapshot of a graph needs from torch and can't get by public names.

Two tensors share memory when their storages are one C++ object, and that object's address is the only handle on it
that costs no Python object. The operators of an FX graph are recognised by their class, since only they print
themselves in the `aten.add.Tensor` form that people know.
"""

from __future__ import annotations

from typing import Any

import torch


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
