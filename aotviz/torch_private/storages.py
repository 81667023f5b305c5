"""Tensors seen as memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a block of memory, each once."""
    return bool(is_non_overlapping_and_dense_or_false(tensor))


def storage_as_tensor(tensor: torch.Tensor, dtype: torch.dtype, length: int) -> torch.Tensor:
    """The first elements of a tensor's storage as a flat tensor of a dtype: shape [length], or less if it has less."""
    storage = tensor.untyped_storage()
    with torch.no_grad():
        whole = torch.empty(0, dtype=dtype, device=tensor.device)
        return whole.set_(storage, 0, (min(length, storage.nbytes() // dtype.itemsize),))


def lie_in(
    base: torch.Tensor | None, shape: Sequence[int], stride: Sequence[int], *members: tuple[torch.Tensor, int]
) -> bool:
    """Whether `base` has that layout and each member lies in its storage at that offset, in elements."""
    if base is None or base.shape != torch.Size(shape) or base.stride() != stride:
        return False
    storage = base.untyped_storage()._cdata
    return all(m.storage_offset() == offset and m.untyped_storage()._cdata == storage for m, offset in members)


def has_no_root(tensor: torch.Tensor) -> bool:
    """Whether it is a view of a tensor that does not require grad."""
    return tensor._base is not None and not tensor._base.requires_grad


def is_root(
    root: torch.Tensor | None,
    dtype: torch.dtype,
    requires_grad: bool,
    shape: Sequence[int],
    stride: Sequence[int],
    offset: int,
    *views: torch.Tensor,
) -> bool:
    """Whether `root` is such a tensor with a history of its own, and each of `views` is a view of it."""
    if root is None or root.dtype is not dtype or root.requires_grad != requires_grad:
        return False
    alike = root.shape == torch.Size(shape) and root.stride() == stride and root.storage_offset() == offset
    base = root._base
    own = base is None or base.requires_grad != requires_grad or base.dtype.to_real() != dtype.to_real()
    return alike and own and all(view._base is root for view in views)
