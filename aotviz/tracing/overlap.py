"""Do two tensors share an element? Two views of one storage need not: rows 0-1 and rows 2-3 do not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotviz.ir.symbolic_sizes import hint
from aotviz.ir.view_and_mutation import Layout
from aotviz.tracing.views import layout

_LIMIT = 1 << 24  # elements spanned; beyond it, two tensors whose ranges meet count as overlapping


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether some element of `a` is one of `b`, both over the same storage.

    Symbolic sizes count as what they are in this call. Tensors too large to be marked count as overlapping.
    """
    first, second = hinted(layout(a)), hinted(layout(b))
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
    return bool(_marked(length, first, second, start).any())


def covers(whole: Layout, part: Layout) -> bool:
    """Whether each element of `part` is one of `whole`, both of one dtype and over the same storage. Sizes as in
    `overlap`; of what is too large to be marked, it is not known, and False."""
    first, second = hinted(whole), hinted(part)
    start, length = min(first.offset, second.offset), max(span(one, torch.bool)[1] for one in (first, second))
    return length - start <= _LIMIT and bool(_marked(length - start, first, second, start).all())


def _marked(length: int, marked: Layout, seen: Layout, start: int) -> torch.Tensor:
    """Of `length` elements from `start` on, those that are `seen`: which of them are `marked`."""
    with torch.no_grad():
        cells = torch.zeros(length, dtype=torch.bool)
        cells.as_strided(marked.size, marked.stride, marked.offset - start).fill_(True)
        return cells.as_strided(seen.size, seen.stride, seen.offset - start)


def within(part: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether the bytes that `part` spans are among those that `whole` spans, both over the same storage."""
    low, high = span(layout(part), part.dtype)
    first, last = span(layout(whole), whole.dtype)
    return first <= low and high <= last


def span(where: Layout, dtype: torch.dtype) -> tuple[int, int]:
    """The half-open range of bytes that a tensor's elements span in its storage, in this call."""
    where = hinted(where)
    extent = sum((size - 1) * stride for size, stride in zip(where.size, where.stride, strict=True))
    return where.offset * dtype.itemsize, (where.offset + extent + 1) * dtype.itemsize


def hinted(where: Layout) -> Layout:
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
