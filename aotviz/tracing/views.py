"""View chains: how to make an output again from the tensor that it is a view of.

A functional graph spells every view as a node, so the chain from a base to an output can be read off it. The
generated wrapper then repeats the user's own views (`base.view(4, 2).select(0, 1)`), with the history that eager
would give them, instead of an `as_strided` that nobody wrote.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.metadata import Layout, ViewStep
from aotviz.torch_private import operators

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
        if not operators.is_view(node.target) or node.kwargs or not all(map(_plain, node.args[1:])):
            return None
        no_grad = bool(node.meta.get("under_no_grad"))
        steps.append(ViewStep(node.target, tuple(map(_frozen, node.args[1:])), item, no_grad))
        item = None
        node = node.args[0]
    return None if item is not None else tuple(reversed(steps))


def _plain(argument: Any) -> bool:
    if isinstance(argument, (list, tuple)):
        return all(map(_plain, argument))
    return isinstance(argument, _PLAIN)


def _frozen(argument: Any) -> Any:
    return tuple(map(_frozen, argument)) if isinstance(argument, (list, tuple)) else argument


def layout(tensor: torch.Tensor) -> Layout:
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def recipe(base: Layout, where: Layout) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """How to get a tensor that lies at `where` from one that lies at `base`: (method, arguments) of each view.

    A run of the base's elements, permuted and expanded, is said with the views that say so; only what has gaps needs
    `as_strided`, which functionalisation and autograd handle less well.

    >>> recipe(Layout((2, 3), (3, 1), 0), Layout((3, 2), (1, 3), 0))
    (('view', ((-1,),)), ('view', ((2, 3),)), ('permute', ((1, 0),)))
    """
    if where == base:
        return (("view", (where.size,)),)
    kept = [
        i for i, (size, stride) in enumerate(zip(where.size, where.stride, strict=True)) if size > 1 and stride != 0
    ]
    order = sorted(kept, key=lambda i: -where.stride[i])
    length = 1
    for i in reversed(order):
        if where.stride[i] != length:
            return (("as_strided", (where.size, where.stride, where.offset)),)
        length *= where.size[i]
    start = where.offset - base.offset
    whole = math.prod(base.size)
    if not _contiguous(base) or start < 0 or start + length > whole or 0 in where.size:
        return (("as_strided", (where.size, where.stride, where.offset)),)
    order += [i for i in range(len(where.size)) if i not in kept]
    sizes = tuple(where.size[i] if i in kept else 1 for i in order)
    inverse = tuple(order.index(i) for i in range(len(order)))
    steps: list[tuple[str, tuple[Any, ...]]] = [("view", ((-1,),))]
    if (start, length) != (0, whole):
        steps.append(("slice", (0, start, start + length)))
    steps.append(("view", (sizes,)))
    if inverse != tuple(range(len(order))):
        steps.append(("permute", (inverse,)))
    if tuple(sizes[i] for i in inverse) != where.size:
        steps.append(("expand", (where.size,)))
    return tuple(steps)


def follow(tensor: Any, steps: tuple[tuple[str, tuple[Any, ...]], ...]) -> Any:
    """Apply a recipe."""
    for method, arguments in steps:
        if method == "slice":
            tensor = torch.ops.aten.slice.Tensor(tensor, *arguments)
        else:
            tensor = getattr(tensor, method)(*arguments)
    return tensor


def without(steps: tuple[ViewStep, ...], start: tuple[tuple[str, tuple[Any, ...]], ...]) -> tuple[ViewStep, ...] | None:
    """The steps of a chain that come after a recipe; None if it does not begin with that recipe."""
    said = tuple((str(step.target.overloadpacket.__name__), step.args) for step in steps[: len(start)])
    return steps[len(start) :] if said == start else None


def _contiguous(where: Layout) -> bool:
    length = 1
    for size, stride in zip(reversed(where.size), reversed(where.stride), strict=True):
        if size != 1 and stride != length:
            return False
        length *= size
    return True
