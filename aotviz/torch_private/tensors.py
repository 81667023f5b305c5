"""What can be seen of a tensor only through private names: its base, its version, its storage, its parts."""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def base(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that autograd takes this one for a view of."""
    return tensor._base


def version(tensor: torch.Tensor) -> int | None:
    """How often a tensor was written in place; None for an inference tensor, which does not count."""
    return None if tensor.is_inference() else int(tensor._version)


def storage_key(tensor: torch.Tensor) -> Any:
    """Equal for two living tensors if and only if they share a storage."""
    return tensor.untyped_storage()._cdata


def inside(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The tensors that a wrapper subclass is made of, by attribute; none for a tensor with memory of its own."""
    if not is_traceable_wrapper_subclass(tensor):
        return {}
    return {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}


def dense(tensor: torch.Tensor) -> bool:
    """Whether a clone lies in its memory as this tensor does in its own: from the start, without gaps or overlap."""
    return tensor.storage_offset() == 0 and bool(is_non_overlapping_and_dense_or_false(tensor))


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """The half-open range of bytes in its storage from its first element to its last; it must have one.

    >>> span(torch.zeros(4)[1:3])
    (4, 12)
    """
    extent = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.storage_offset()
    return start * tensor.element_size(), (start + extent + 1) * tensor.element_size()


def capacity(tensor: torch.Tensor) -> int:
    """How many elements of the tensor's type its storage holds."""
    return int(tensor.untyped_storage().nbytes() // tensor.dtype.itemsize)


def with_bits(made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`made`, read as conjugated or negated where `like` is."""
    made = torch._conj(made) if like.is_conj() != made.is_conj() else made
    return torch._neg_view(made) if like.is_neg() != made.is_neg() else made


def without_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, read as it is: neither conjugated nor negated."""
    tensor = torch._conj(tensor) if tensor.is_conj() else tensor
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def of_other_kind(base: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A view of `base` where `like` lies in the same storage; one of them is complex and the other is not."""
    base = without_bits(base)
    if base.is_complex():
        made = torch.view_as_real(base).as_strided(like.shape, like.stride(), like.storage_offset())
    else:
        stride = [2 * step for step in like.stride()]
        pairs = base.as_strided((*like.shape, 2), (*stride, 1), 2 * like.storage_offset())
        made = torch.view_as_complex(pairs)
    return with_bits(made, like)


def reinterpreted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same memory as elements of another type."""
    if tensor.is_complex() and not dtype.is_complex:
        return torch.view_as_real(tensor)
    if dtype.is_complex and not tensor.is_complex():
        return torch.view_as_complex(tensor)
    return tensor.view(dtype)
