"""Private names of torch that a snapshot of a graph needs.

The operators of an FX graph are recognised by their class, since only they print themselves in the familiar form
`aten.add.Tensor`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch

from aotviz.torch_private.tensors import storage_key as storage_key

OPERATOR = torch._ops.OpOverload
"""The type of targets that have a schema: their arguments are tensors, numbers, texts and lists of them."""


def device(tensor: torch.Tensor) -> torch.device:
    """The device of a tensor, or of a fake the one that it stands for. A fake's own `device` is slow."""
    return getattr(tensor, "fake_device", None) or tensor.device


# Behind Node's properties: every graph is read before and after every stage.
arguments: Callable[[Any], tuple[Any, ...]] = attrgetter("_args")
keywords: Callable[[Any], dict[str, Any]] = attrgetter("_kwargs")
