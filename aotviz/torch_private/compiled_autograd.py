"""Functions and their nodes, as torch's compiled autograd sees them; see `runtime/capturable.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Any

import torch
from torch._dynamo.external_utils import FakeBackwardCFunction


def as_captured(node: Any, saved: Sequence[Any]) -> Any:
    """A stand-in for a node. `saved` are its saved tensors, which a graph has unpacked."""
    return FakeBackwardCFunction(node, list(saved))


function_of: Callable[[Any], type[torch.autograd.Function]] = attrgetter("_forward_cls")
"""The Function that made a node."""

sizes_of: Callable[[Any], Sequence[Any]] = methodcaller("_get_compiled_autograd_symints")
"""The sizes that a Function's cache key contains besides its number, as symbols of the graph."""


def number_of(function: type[torch.autograd.Function]) -> int:
    """The number by which torch tells the backwards of Functions apart."""
    return function._backward_cls._autograd_function_id
