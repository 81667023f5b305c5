"""What a call needs of the storages that the compiled function resizes.

FSDP frees a parameter by `untyped_storage().resize_(0)`, and the tensor keeps its shape. Before such a tensor is used
again, its storage must be large enough for it.
"""

from __future__ import annotations

from typing import Any

import torch


def make_room(tensor: torch.Tensor, size: int) -> None:
    """Let the storage of a tensor hold all its elements, and at least `size` bytes.

    >>> freed = torch.ones(3)
    >>> freed.untyped_storage().resize_(0).size()
    0
    >>> make_room(freed, 8)
    >>> freed.untyped_storage().size()
    12
    """
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    elements: Any = tensor.storage_offset() + last + 1 if tensor.numel() else 0
    size = max(size, elements * tensor.element_size())
    if tensor.untyped_storage().size() < size:
        tensor.untyped_storage().resize_(size)
