"""Do two tensors share an element? Two views of one storage need not: rows 0-1 and rows 2-3 do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotviz.ir.metadata import Layout
from aotviz.torch_private.fakes import hint
from aotviz.tracing.views import layout

_LIMIT = 1 << 24  # elements spanned; beyond it, two tensors whose ranges meet count as overlapping


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether some element of `a` is one of `b`, both over the same storage.

    Symbolic sizes count as what they are in this call. Tensors too large to be marked count as overlapping.
    """
    first, second = _hinted(layout(a)), _hinted(layout(b))
    if 0 in first.size or 0 in second.size:
        return False
    (low_a, high_a), (low_b, high_b) = span(first, a.dtype), span(second, b.dtype)
    if high_a <= low_b or high_b <= low_a:
        return False
    if a.dtype.itemsize != b.dtype.itemsize:
        return True
    start = min(first.offset, second.offset)
    length = max(high_a, high_b) // a.dtype.itemsize - start
    if length > _LIMIT:
        return True
    return _mark_and_look(length, (first.size, first.stride, first.offset - start), second, start)


def _mark_and_look(length: int, marked: Any, second: Any, start: int) -> bool:
    with torch.no_grad():
        cells = torch.zeros(length, dtype=torch.bool)
        cells.as_strided(*marked).fill_(True)
        return bool(cells.as_strided(second.size, second.stride, second.offset - start).any())


def within(part: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether the bytes that `part` spans are among those that `whole` spans, both over the same storage."""
    low, high = span(layout(part), part.dtype)
    first, last = span(layout(whole), whole.dtype)
    return first <= low and high <= last


def span(where: Layout, dtype: torch.dtype) -> tuple[int, int]:
    """The half-open range of bytes that a tensor's elements span in its storage, in this call."""
    where = _hinted(where)
    extent = sum((size - 1) * stride for size, stride in zip(where.size, where.stride, strict=True))
    return where.offset * dtype.itemsize, (where.offset + extent + 1) * dtype.itemsize


def _hinted(where: Layout) -> Layout:
    """The layout in this call, its symbols replaced by the sizes that they stand for."""
    return Layout(tuple(map(hint, where.size)), tuple(map(hint, where.stride)), hint(where.offset))


def groups(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Positions of tensors over one storage, sorted into sets that are connected by overlap."""
    sets: list[list[int]] = []
    for position, tensor in enumerate(tensors):
        touching = [group for group in sets if any(overlap(tensor, tensors[other]) for other in group)]
        sets = [group for group in sets if group not in touching]
        sets.append(sorted([position, *(p for group in touching for p in group)]))
    return sorted(sets)
