"""What functionalisation knows about a tensor after a function ran on it."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.autograd.function import BackwardCFunction
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["FunctionalTensor", "StorageWeakRef"]


def is_functional(value: Any) -> bool:
    return isinstance(value, FunctionalTensor)


def inner(tensor: Any) -> torch.Tensor:
    """The fake tensor that holds the current value, all pending writes applied."""
    torch._sync(tensor)
    return torch._from_functional_tensor(tensor.elem)


def storage(tensor: torch.Tensor) -> StorageWeakRef:
    """A key that tensors share if and only if they share memory."""
    return StorageWeakRef(tensor.untyped_storage())


def data_mutated(tensor: Any) -> bool:
    return bool(torch._functionalize_has_data_mutation(tensor.elem))


def metadata_mutated(tensor: Any) -> bool:
    return bool(torch._functionalize_has_metadata_mutation(tensor.elem))


def storage_replaced(tensor: Any) -> bool:
    """Whether `set_` gave it another storage."""
    return bool(torch._functionalize_was_storage_changed(tensor.elem))


def storage_resized(tensor: Any) -> bool:
    return bool(torch._functionalize_was_inductor_storage_resized(tensor.elem))


def hidden_from_autograd(tensor: Any) -> bool:
    """Whether all writes went through `.data` or a detached alias."""
    return bool(torch._functionalize_are_all_mutations_hidden_from_autograd(tensor.elem))


def under_no_grad(tensor: Any) -> bool:
    return bool(torch._functionalize_are_all_mutations_under_no_grad_or_inference_mode(tensor.elem))


def multi_output_view(tensor: Any) -> bool:
    return bool(torch._functionalize_is_multi_output_view(tensor.elem))


def grad_fn(tensor: torch.Tensor) -> Any:
    """Read under the functional mode, since a stale view regenerates its history when asked."""
    with FunctionalTensorMode():
        return tensor.grad_fn


def from_custom_function(node: Any) -> bool:
    """Whether an autograd node belongs to a user's `autograd.Function`."""
    return isinstance(node, BackwardCFunction)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether several indices address one element, as after `expand`."""
    return int(torch._debug_has_internal_overlap(tensor)) == 1
