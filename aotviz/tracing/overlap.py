"""Whether two tensors over one storage share an element. Rows 0-1 and rows 2-3 of a matrix do not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotviz.ir.symbolic_sizes import hint
from aotviz.ir.view_and_mutation import Layout
from aotviz.tracing.views import layout

_LIMIT = 1 << 24  # elements; two larger tensors whose ranges meet count as overlapping


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether `a` and `b`, over one storage, share an element.

    Symbolic sizes have the values of this call. Tensors above the size limit count as overlapping.
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
    """Whether `whole` contains each element of `part`, both of one dtype and over one storage. Symbolic sizes have the
    values of this call. False above the size limit, where it is not known."""
    first, second = hinted(whole), hinted(part)
    start, length = min(first.offset, second.offset), max(span(one, torch.bool)[1] for one in (first, second))
    return length - start <= _LIMIT and bool(_marked(length - start, first, second, start).all())


def _marked(length: int, marked: Layout, seen: Layout, start: int) -> torch.Tensor:
    """For `length` elements from `start` on: for each element of `seen`, whether it belongs to `marked`."""
    with torch.no_grad():
        cells = torch.zeros(length, dtype=torch.bool)
        cells.as_strided(marked.size, marked.stride, marked.offset - start).fill_(True)
        return cells.as_strided(seen.size, seen.stride, seen.offset - start)


def within(part: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether the byte range of `part` lies inside the byte range of `whole`, both over one storage."""
    low, high = span(layout(part), part.dtype)
    first, last = span(layout(whole), whole.dtype)
    return first <= low and high <= last


def span(where: Layout, dtype: torch.dtype) -> tuple[int, int]:
    """The half-open range of bytes that a tensor's elements span in its storage, in this call."""
    where = hinted(where)
    extent = sum((size - 1) * stride for size, stride in zip(where.size, where.stride, strict=True))
    return where.offset * dtype.itemsize, (where.offset + extent + 1) * dtype.itemsize


def hinted(where: Layout) -> Layout:
    """The layout with the values of this call in place of symbols."""
    return Layout(tuple(map(hint, where.size)), tuple(map(hint, where.stride)), hint(where.offset))


def groups(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Positions of tensors over one storage, in groups that are connected by overlap."""
    sets: list[list[int]] = []
    for position, tensor in enumerate(tensors):
        touching = [group for group in sets if any(overlap(tensor, tensors[other]) for other in group)]
        sets = [group for group in sets if group not in touching]
        sets.append(sorted([position, *(p for group in touching for p in group)]))
    return sorted(sets)
