"""Layouts, and what can be said about a view before the call."""

from __future__ import annotations

import math
from typing import Any

import torch

from aotviz.ir.metadata import Layout

_SAYABLE = (int, float, bool, str, type(None), torch.dtype)


def plain(argument: Any) -> bool:
    """Whether an operator's argument is known before the call, and can be written in a source."""
    if isinstance(argument, (list, tuple)):
        return all(map(plain, argument))
    return isinstance(argument, _SAYABLE)


def frozen(argument: Any) -> Any:
    """The argument with its lists as tuples."""
    return tuple(map(frozen, argument)) if isinstance(argument, (list, tuple)) else argument


def layout(tensor: torch.Tensor) -> Layout:
    """Where a tensor lies in its storage."""
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


def _contiguous(where: Layout) -> bool:
    length = 1
    for size, stride in zip(reversed(where.size), reversed(where.stride), strict=True):
        if size != 1 and stride != length:
            return False
        length *= size
    return True
