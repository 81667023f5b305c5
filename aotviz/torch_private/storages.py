"""Tensors seen as memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a block of memory, each once."""
    return bool(is_non_overlapping_and_dense_or_false(tensor))


def storage_as_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's storage as a flat tensor of its dtype: shape [storage bytes // itemsize]."""
    with torch.no_grad():
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return whole.set_(tensor.untyped_storage())


def lie_in(
    base: torch.Tensor | None, shape: Sequence[int], stride: Sequence[int], *members: tuple[torch.Tensor, int]
) -> bool:
    """Whether `base` has that layout and each member lies in its storage at that offset, in elements."""
    if base is None or base.shape != torch.Size(shape) or base.stride() != stride:
        return False
    storage = base.untyped_storage()._cdata
    return all(m.storage_offset() == offset and m.untyped_storage()._cdata == storage for m, offset in members)
