"""Functions and their nodes, as torch's compiled autograd sees them; see `runtime/capturable.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.external_utils import FakeBackwardCFunction


def as_captured(node: Any, saved: Sequence[Any]) -> Any:
    """A stand-in for a node. `saved` are its saved tensors, which a graph has unpacked."""
    return FakeBackwardCFunction(node, list(saved))


def function_of(node: Any) -> type[torch.autograd.Function]:
    """The Function that made a node."""
    return node._forward_cls


def number_of(function: type[torch.autograd.Function]) -> int:
    """The number by which torch tells the backwards of Functions apart."""
    return function._backward_cls._autograd_function_id


def sizes_of(node: Any) -> Sequence[Any]:
    """The sizes that a Function's cache key contains besides its number, as symbols of the graph."""
    return node._get_compiled_autograd_symints()
