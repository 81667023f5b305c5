"""Private state of a tensor: its base, version, storage, and conjugate and negative bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from operator import attrgetter, methodcaller
from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_traceable_wrapper_subclass

# Generated code calls these three, so they cost no more than the attribute.
base_of: Callable[[torch.Tensor], torch.Tensor | None] = attrgetter("_base")
"""The tensor that autograd takes a tensor for a view of, or None."""

write_count: Callable[[Any], int] = attrgetter("_version")
"""The version of a tensor. Raises RuntimeError for an inference tensor, which has none."""

has_no_memory: Callable[[torch.Tensor], bool] = torch.Tensor._is_zerotensor
"""Whether a tensor is zeros without memory, as the backward of `sgn` and `abs` makes them. Operators know this; a
compiled kernel would read from address 0."""

belongs_to_a_transform: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor
"""Whether a transform of torch.func made a tensor, also one that has ended."""

set_write_counts = torch._C._autograd._unsafe_set_version_counter
"""Called with a tuple of tensors and one of counts."""

mirror_autograd: Callable[[torch.Tensor, torch.Tensor], None] = torch._mirror_autograd_meta_to  # type: ignore[attr-defined]
"""Called with two tensors: gives the second the autograd state of the first."""


storage_key: Callable[[torch.Tensor], int] = torch._C._storage_address  # type: ignore[attr-defined]
"""Equal for two living tensors if and only if they share a storage: one C++ object, of which no Python object is made.
Raises whatever torch raises for a layout without one storage (sparse, opaque)."""

unseen_by_modes = torch._C.DisableTorchFunction
"""In this block no TorchFunctionMode and no subclass sees what is asked of a tensor."""


def device(tensor: torch.Tensor) -> torch.device:
    """The device of a tensor, or of a fake the one that it stands for. A fake's own `device` is slow."""
    return getattr(tensor, "fake_device", None) or tensor.device


_use_count: Callable[[torch.Tensor], int] = methodcaller("_use_count")

KEPT_BY_AUTOGRAD = ("_version", "_base", "retains_grad", "output_nr")
"""The attributes of a tensor with autograd state."""
ASKED_OF_AUTOGRAD = ("_is_view",)
"""The methods that return such state."""


def version(tensor: torch.Tensor) -> int | None:
    """The version of a tensor; None for an inference tensor, which has none."""
    return None if tensor.is_inference() else write_count(tensor)


def is_kept_by_autograd(tensor: torch.Tensor) -> bool:
    """Whether C++ also holds a tensor, and so one reference to its Python object: for a backward, or as the base of a
    view."""
    with torch._C.DisableTorchFunctionSubclass():
        return _use_count(tensor) > 1


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements fill a part of memory, each place once. False where that is not known."""
    try:
        return bool(is_non_overlapping_and_dense_or_false(tensor))
    except ValueError:  # the size of a jagged dimension is neither smaller nor larger than another
        return False


def key_of(storage: torch.UntypedStorage) -> int:
    """The `storage_key` of the tensors over a storage."""
    return storage._cdata


def is_held_once(tensor: torch.Tensor) -> bool:
    """Whether nothing but its one Python object holds a tensor, and no tensor shares its storage, other than one that
    is held only as its `_base`."""
    storage, base = tensor.untyped_storage(), tensor._base
    if base is not None and _use_count(base) != 2:  # `tensor`, and `base`
        return False
    tensors = 1 if base is None else 2
    return _use_count(tensor) == 1 and torch._C._storage_Use_Count(storage._cdata) == tensors + 1  # and `storage`


def without_base(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or one in its memory that does not hold the base that a view holds."""
    return tensor if tensor._base is None else tensor.detach()


def own_hash(tensor: torch.Tensor) -> str | None:
    """What a subclass offers to a cache in place of its context: a text that determines all but its inner tensors."""
    found = getattr(tensor, "_stable_hash_for_caching", None)
    return None if found is None else str(found())


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether several indices address one element, as after `expand`."""
    return int(torch._debug_has_internal_overlap(tensor)) == 1


def switches_torch_function_off(kind: type[torch.Tensor]) -> bool:
    """Whether a class of tensors disables `__torch_function__`."""
    off = torch._C._disabled_torch_function_impl
    return kind.__torch_function__ is off


conjugated: Callable[[torch.Tensor], torch.Tensor] = torch._conj
negated: Callable[[torch.Tensor], torch.Tensor] = torch._neg_view


def with_bits(made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`made` with the conjugate and negative bits of `like`."""
    made = torch._conj(made) if like.is_conj() != made.is_conj() else made
    return torch._neg_view(made) if like.is_neg() != made.is_neg() else made


def without_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory without conjugate and negative bits."""
    tensor = torch._conj(tensor) if tensor.is_conj() else tensor
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def without_ended_transforms(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that operators take instead of one that transforms made which have ended."""
    inside = torch._C._functorch.unwrap_if_dead(tensor)
    return tensor if inside is tensor else without_ended_transforms(inside)


def dynamic_marks(tensor: torch.Tensor) -> dict[str, Any]:
    """What `mark_dynamic` and its like have written on a tensor, by attribute."""
    return {name: copy(value) for name, value in vars(tensor).items() if _MARK.fullmatch(name)}


_MARK = re.compile(r"_dynamo_(?!static_input_type)\w+")


def is_custom_view(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view that a custom autograd.Function returned: gradients pass its backward."""
    custom = torch._C._autograd.CreationMeta.IN_CUSTOM_FUNCTION
    return tensor._is_view() and torch._C._autograd._get_creation_meta(tensor) == custom
