"""Tensors as memory: storages, layouts and ranges of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotviz.torch_private import tensors


def storage_as_tensor(tensor: torch.Tensor, dtype: torch.dtype, length: int) -> torch.Tensor:
    """The first elements of a tensor's storage as a flat tensor: shape [length], or less if the storage is smaller."""
    storage = tensor.untyped_storage()
    with torch.no_grad():
        whole = torch.empty(0, dtype=dtype, device=tensor.device)
        return whole.set_(storage, 0, (min(length, storage.nbytes() // dtype.itemsize),), (1,))


def lie_in(
    base: torch.Tensor | None, shape: Sequence[int], stride: Sequence[int], *members: tuple[torch.Tensor, int]
) -> bool:
    """Whether `base` has this layout, and each (member, offset in elements) is at this offset in its storage."""
    if base is None or base.shape != torch.Size(shape) or base.stride() != stride:
        return False
    storage = tensors.storage_key(base)
    return all(m.storage_offset() == offset and tensors.storage_key(m) == storage for m, offset in members)


def has_no_root(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view of one that does not require grad."""
    base = tensors.base_of(tensor)
    return base is not None and not base.requires_grad


def is_root(
    root: torch.Tensor | None,
    dtype: torch.dtype,
    requires_grad: bool,
    shape: Sequence[int],
    stride: Sequence[int],
    offset: int,
    *views: torch.Tensor,
) -> bool:
    """Whether `root` has these properties and an independent `grad_fn` (see `root` in tracing/shared_memory.py), and is
    the base of each of `views`."""
    if root is None or root.dtype is not dtype or root.requires_grad != requires_grad:
        return False
    alike = root.shape == torch.Size(shape) and root.stride() == stride and root.storage_offset() == offset
    base = tensors.base_of(root)
    own = base is None or base.requires_grad != requires_grad or base.dtype.to_real() != dtype.to_real()
    return alike and own and all(tensors.base_of(view) is root for view in views)


def dense(tensor: torch.Tensor) -> bool:
    """Whether a clone would have the same layout: the tensor has offset 0, no gaps and no overlap."""
    return tensor.storage_offset() == 0 and bool(tensors.is_dense(tensor))


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """The half-open range of bytes in its storage from the first element to the last. It must have an element.

    >>> span(torch.zeros(4)[1:3])
    (4, 12)
    """
    extent: Any = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start: Any = tensor.storage_offset()  # symbolic for a fake
    return start * tensor.element_size(), (start + extent + 1) * tensor.element_size()


def capacity(tensor: torch.Tensor) -> int:
    """How many elements of the tensor's dtype fit into its storage."""
    return int(tensor.untyped_storage().nbytes() // tensor.dtype.itemsize)


def of_other_kind(base: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A view of `base` with the layout of `like`, which has the same storage. It is real if `base` is complex, and
    complex if it is real."""
    base = tensors.without_bits(base)
    if base.is_complex():
        made = torch.view_as_real(base).as_strided(like.shape, like.stride(), like.storage_offset())
    else:
        stride = [2 * step for step in like.stride()]
        pairs = base.as_strided((*like.shape, 2), (*stride, 1), 2 * like.storage_offset())
        made = torch.view_as_complex(pairs)
    return tensors.with_bits(made, like)


def reinterpreted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same memory as elements of another dtype."""
    if tensor.is_complex() and not dtype.is_complex:
        return torch.view_as_real(tensor)
    if dtype.is_complex and not tensor.is_complex():
        return torch.view_as_complex(tensor)
    return tensor.view(dtype)
