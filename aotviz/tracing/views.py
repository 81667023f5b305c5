"""Layouts and strides: the views that lead from one layout to another, and strides of sizes that are symbols."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from aotviz.ir.symbolic_sizes import hint
from aotviz.ir.view_and_mutation import Layout
from aotviz.torch_private.tensors import with_bits, without_bits
from aotviz.tracing.events import TensorNumber

_SAYABLE = (int, float, bool, str, type(None), torch.dtype)


def plain(argument: Any) -> bool:
    """Whether an operator's argument is known before the call and can be written in source code."""
    if isinstance(argument, (list, tuple)):
        return all(map(plain, argument))
    return isinstance(argument, _SAYABLE) and not isinstance(argument, TensorNumber)


def layout(tensor: torch.Tensor) -> Layout:
    offset: Any = tensor.storage_offset()
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), offset)


def specialised(tensor: torch.Tensor) -> Layout:
    """The layout as plain numbers. Reading the value of a symbolic size adds a guard."""
    return Layout(tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride())), int(tensor.storage_offset()))


def recipe(base: Layout, where: Layout) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The views, as (method, arguments), that lead from a tensor with layout `base` to one with layout `where`.

    A part of the base, permuted and expanded, is expressed by those views. `as_strided`, which functionalization and
    autograd handle less well, is used only if dimensions interlock.

    >>> recipe(Layout((2, 3), (3, 1), 0), Layout((3, 2), (1, 3), 0))
    (('view', ((-1,),)), ('view', ((2, 3),)), ('permute', ((1, 0),)))
    >>> recipe(Layout((6,), (1,), 0), Layout((3,), (2,), 1))
    (('view', ((-1,),)), ('slice', (0, 1, 6, 2)), ('view', ((3,),)))
    """
    if where == base:
        return (("view", (where.size,)),)
    strided = (("as_strided", (where.size, where.stride, where.offset)),)
    start, whole = where.offset - base.offset, math.prod(base.size)
    if not contiguous(base) or start < 0 or 0 in where.size:
        return strided
    kept = [i for i, (n, stride) in enumerate(zip(where.size, where.stride, strict=True)) if n > 1 and stride != 0]
    dims = sorted(((where.size[i], where.stride[i]) for i in kept), key=lambda dim: -dim[1])
    found = _picked(dims, start, whole)
    if found is None:
        return strided
    # a dimension of size one lies where its stride says: an operator orders the dimensions of its result by strides
    order = sorted(range(len(where.size)), key=lambda i: (-where.stride[i], i not in kept))
    sizes = tuple(where.size[i] if i in kept else 1 for i in order)
    inverse = tuple(order.index(i) for i in range(len(order)))
    steps: list[tuple[str, tuple[Any, ...]]] = [("view", ((-1,),)), *found, ("view", (sizes,))]
    if inverse != tuple(range(len(order))):
        steps.append(("permute", (inverse,)))
    if tuple(sizes[i] for i in inverse) != where.size:
        steps.append(("expand", (where.size,)))
    return tuple(steps)


def _picked(dims: list[tuple[int, int]], start: int, length: int) -> list[tuple[str, tuple[Any, ...]]] | None:
    """The steps from `length` elements in a row to those that `dims`, (size, stride) from the outermost, select from
    `start`.

    None if a dimension exceeds the step of the next outer one, or if the row ends too early.
    """
    steps: list[tuple[str, tuple[Any, ...]]] = []
    rows: tuple[int, ...] = ()
    for k, (size, stride) in enumerate(dims):
        span = 1 + sum((n - 1) * step for n, step in dims[k:])
        inside = span - (size - 1) * stride
        if start + span > length:
            return None
        dense = _dense(dims[k:])
        if dense or inside == 1:  # the rest has no gaps, or is one row of elements at equal distances
            step = () if dense else (stride,)
            if (start, span, step) != (0, length, ()):
                steps.append(("slice", (len(rows), start, start + span, *step)))
            return steps
        early = max(0, start + size * stride - length)
        if stride < inside or start < early:
            return None
        steps.append(("slice", (len(rows), start - early, start - early + size * stride)))
        rows += (size,)
        steps.append(("view", ((*rows, stride),)))
        start, length = early, stride
    if (start, length) != (0, 1):
        steps.append(("slice", (0, start, start + 1)))
    return steps


def follow(tensor: torch.Tensor, steps: tuple[tuple[str, tuple[Any, ...]], ...]) -> Any:
    for method, arguments in steps:
        if method == "slice":
            tensor = torch.ops.aten.slice.Tensor(tensor, *arguments)
        else:
            tensor = getattr(tensor, method)(*arguments)
    return tensor


def lying_like(source: Any, origin: Layout, like: torch.Tensor) -> Any:
    """A view of `source`, which has the layout `origin`, with the layout and dtype of `like` in the same storage.

    If the dtypes differ by more than complex and real, `source` is a flat tensor over the whole storage, and its
    elements are not larger than those of `like`.
    """
    where = specialised(like)
    if like.dtype == source.dtype:
        return with_bits(follow(source, recipe(origin, where)), like)
    source = without_bits(source)
    if source.is_complex() and like.dtype == source.dtype.to_real():
        made = follow(torch.view_as_real(source), recipe(_as_real(origin), where))
    elif like.is_complex() and source.dtype == like.dtype.to_real():
        made = torch.view_as_complex(follow(source, recipe(origin, _as_real(where))))
    else:
        ratio = like.dtype.itemsize // source.dtype.itemsize
        extent = 1 + sum((size - 1) * stride for size, stride in zip(where.size, where.stride, strict=True) if size)
        first = where.offset
        run = follow(source, (("slice", (0, first * ratio, (first + extent) * ratio)),)).view(like.dtype)
        made = follow(run, recipe(Layout((extent,), (1,), first), where))
    return with_bits(made, like)


def _as_real(where: Layout) -> Layout:
    """The layout of the same complex elements as pairs of real ones."""
    return Layout((*where.size, 2), (*(2 * stride for stride in where.stride), 1), 2 * where.offset)


def contiguous(where: Layout) -> bool:
    """Whether the elements are in order and without gaps. Dimensions of size one do not matter."""
    return _dense([pair for pair in zip(where.size, where.stride, strict=True) if pair[0] != 1])


def _dense(dims: list[tuple[int, int]]) -> bool:
    """Whether (size, stride) dimensions, from the outermost, have neither gaps nor overlap."""
    length = 1
    for size, stride in reversed(dims):
        if stride != length:
            return False
        length *= size
    return True


def order_of(strides: Sequence[Any]) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost, even if the strides themselves are symbols.

    >>> order_of((1, 4))
    (1, 0)
    """
    return tuple(sorted(range(len(strides)), key=lambda i: -hint(strides[i])))


def strides_in(order: Sequence[int], size: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a dense tensor with this order of dimensions in memory.

    >>> strides_in((1, 0), (2, 3))
    (1, 2)
    """
    strides: list[Any] = [1] * len(size)
    step: Any = 1
    for dimension in reversed(order):
        strides[dimension] = step
        extent = size[dimension]
        step = step * (max(extent, 1) if isinstance(extent, int) else extent)
    return tuple(strides)
