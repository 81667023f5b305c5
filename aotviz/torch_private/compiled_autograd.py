"""Functions and their nodes, as torch's compiled autograd sees them; see `runtime/capturable.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.external_utils import FakeBackwardCFunction


def as_captured(node: Any, saved: Sequence[Any]) -> Any:
    """A stand-in for a node, whose saved tensors a graph has unpacked."""
    return FakeBackwardCFunction(node, list(saved))


def function_of(node: Any) -> type[torch.autograd.Function]:
    """The Function whose node this is."""
    return node._forward_cls


def number_of(function: type[torch.autograd.Function]) -> int:
    """By which torch tells the backwards of Functions apart."""
    return function._backward_cls._autograd_function_id


def sizes_of(node: Any) -> Sequence[Any]:
    """What a Function's key gave besides its number, as symbols of the graph."""
    return node._get_compiled_autograd_symints()
