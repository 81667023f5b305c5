"""The graph of autograd nodes behind some tensors, as torch's public attributes show it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction


def from_custom_function(node: Any) -> bool:
    """Whether an autograd node belongs to a user's `autograd.Function`."""
    return isinstance(node, BackwardCFunction)


def nodes_behind(roots: Iterable[Any], limit: float = math.inf) -> list[Any]:
    """The autograd nodes that gradients reach from these, which are included. At most `limit` nodes are visited."""
    seen: dict[Any, None] = {}
    stack = list(roots)
    while stack and len(seen) < limit:
        node = stack.pop()
        if node is not None and node not in seen:
            seen[node] = None
            stack.extend(following for following, _ in node.next_functions)
    return list(seen)


def leaves_behind(nodes: Iterable[Any], limit: float = math.inf) -> list[torch.Tensor]:
    """The leaves that gradients reach from these autograd nodes. At most `limit` nodes are visited."""
    found = (getattr(node, "variable", None) for node in nodes_behind(nodes, limit))
    return [leaf for leaf in found if isinstance(leaf, torch.Tensor)]


def is_stale(tensor: torch.Tensor) -> bool:
    """Whether autograd refuses every use of a view from now on, because its base was written, or changed in shape,
    after it was taken: one of the results of `split`, or a view that was taken under no_grad."""
    try:
        tensor.grad_fn  # noqa: B018 -- reading it may regenerate it
    except (RuntimeError, ValueError, IndexError):  # the last two if its base has changed shape
        return True
    return False


def grad_fn(tensor: torch.Tensor) -> Any:
    """A tensor's `grad_fn`, None for a stale one."""
    return None if is_stale(tensor) else tensor.grad_fn
