"""View chains: how to make an output again from the tensor that it is a view of.

A functional graph spells every view as a node, so the chain from a base to an output can be read off it. The
generated wrapper then repeats the user's own views (`base.view(4, 2).select(0, 1)`), with the history that eager
would give them, instead of an `as_strided` that nobody wrote.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.metadata import Layout, ViewStep

_PLAIN = (int, float, bool, str, type(None), torch.dtype)


def chain(node: Any, base: Any) -> tuple[ViewStep, ...] | None:
    """The steps from `base` to `node`, or None where the graph has no such path or a step needs a symbolic size."""
    steps: list[ViewStep] = []
    item: int | None = None
    while node is not base:
        if not isinstance(node, fx.Node) or node.op != "call_function":
            return None
        if node.target is operator.getitem and item is None:
            node, item = node.args[0], node.args[1]
            continue
        if not is_view(node.target) or node.kwargs or not all(map(_plain, node.args[1:])):
            return None
        steps.append(ViewStep(node.target, tuple(map(_frozen, node.args[1:])), item))
        item = None
        node = node.args[0]
    return None if item is not None else tuple(reversed(steps))


def is_view(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and bool(target.is_view)


def _plain(argument: Any) -> bool:
    if isinstance(argument, (list, tuple)):
        return all(map(_plain, argument))
    return isinstance(argument, _PLAIN)


def _frozen(argument: Any) -> Any:
    return tuple(map(_frozen, argument)) if isinstance(argument, (list, tuple)) else argument


def layout(tensor: torch.Tensor) -> Layout:
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
