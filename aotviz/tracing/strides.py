"""Strides that are not known before the call.

With symbolic sizes, the strides of a dense tensor are products of them. What is known at compile time is the order in
which its dimensions lie in memory; the strides follow from it and from the sizes, whatever these turn out to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotviz.ir.symbolic_sizes import hint


def order_of(strides: Sequence[Any]) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost.

    >>> order_of((1, 4))
    (1, 0)
    """
    return tuple(sorted(range(len(strides)), key=lambda i: -hint(strides[i])))


def strides_in(order: Sequence[int], size: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a dense tensor whose dimensions lie in memory in that order.

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
