"""Whether two tensors over one storage share an element. Rows 0-1 and rows 2-3 of a matrix do not.

Note [Writes that overlap]
Eager refuses most writes to a tensor with overlapping elements, or to one that overlaps an operand in another place:
`x.expand(3, 4).add_(1)` would write each element three times, and `x[1:].add_(x[:-1])` would read what it has already
written. A functional trace computes a result for all of them, because it reads first and writes afterwards. So for such
a write the operator runs eagerly on zeros with the same layout, to see if it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.ir.symbolic_sizes import hint
from aotviz.ir.view_and_mutation import Layout
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import dispatch, operators, pytree
from aotviz.tracing import functional
from aotviz.tracing.views import layout

Root = Callable[[Any], Any]
Lies = Callable[[Any], Layout]
_LIMIT = 1 << 24  # elements; two larger tensors whose ranges meet count as overlapping
_MOST_BYTES = 1 << 24  # that a write is tried on
_SAME_TO_ALL = ("aten.fill_", "aten.zero_")  # writing an element twice does no harm


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether `a` and `b`, over one storage, share an element.

    Symbolic sizes have the values of this call. Tensors above the size limit count as overlapping.
    """
    return _meet(layout(a), a.dtype, layout(b), b.dtype)


def _meet(one: Layout, dtype: torch.dtype, other: Layout, others_dtype: torch.dtype) -> bool:
    first, second = hinted(one), hinted(other)
    if 0 in first.size or 0 in second.size:
        return False
    (low_a, high_a), (low_b, high_b) = span(first, dtype), span(second, others_dtype)
    if high_a <= low_b or high_b <= low_a:
        return False
    if dtype.itemsize != others_dtype.itemsize:
        return True
    start = min(first.offset, second.offset)
    length = max(high_a, high_b) // dtype.itemsize - start
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


def merged(
    sets: Sequence[tuple[int, ...]], joins: Callable[[tuple[int, ...], tuple[int, ...]], bool]
) -> list[tuple[int, ...]]:
    """Sets of positions, merged until `joins(one, other)` is false for all."""
    for k, places in enumerate(sets):
        joined = {k, *(j for j, others in enumerate(sets) if j != k and joins(places, others))}
        if len(joined) > 1:
            whole = tuple(sorted(p for j in joined for p in sets[j]))
            return merged([whole, *(others for j, others in enumerate(sets) if j not in joined)], joins)
    return list(sets)


def refuse_write(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], root: Root, lies: Lies) -> None:
    """Called before an operator that writes. Raise what eager raises; see Note [Writes that overlap]. `root` returns
    the owner of a tensor's memory, and `lies` the tensor's layout there.

    Raises:
        RuntimeError: eager's, where eager refuses the write.
        Refused: "overlapping write", where eager's result depends on the order of its writes.
    """
    if torch.Tag.inplace_view in operator.tags:
        return
    values = pytree.tree_leaves((args, dict(kwargs)))
    if any(map(is_subclass, values)):  # it has no memory; its class may call an operator for each part
        return
    given = [value for value in values if functional.is_functional(value)]
    if str(operator.overloadpacket) in _SAME_TO_ALL or not all(layout(value).concrete for value in given):
        return
    targets = list(filter(functional.is_functional, operators.written(operator, args, kwargs)))
    with dispatch.without_modes():
        if not any(writes_twice(layout(target)) or _reads_of(target, given, root, lies) for target in targets):
            return
    if not any(isinstance(value, torch.Generator) for value in kwargs.values()):
        _ask_eager(operator, args, kwargs, given, root, lies)
    raise Refused("overlapping write", str(operator.overloadpacket).removeprefix("aten."))


def _reads_of(target: Any, given: Sequence[Any], root: Root, lies: Lies) -> bool:
    """Whether another operand overlaps the written tensor in another place. The strides of dimensions of size one do
    not matter, and can differ in a trace."""
    whole, where = root(target), lies(target)
    for other in given:
        if other is not target and root(other) is whole:
            there = lies(other)
            same = _steps(where) == _steps(there) and where.offset == there.offset
            if not same and _meet(where, target.dtype, there, other.dtype):
                return True
    return False


def _steps(where: Layout) -> tuple[Any, ...]:
    return tuple((n, s) if n > 1 else 1 for n, s in zip(where.size, where.stride, strict=True))


def writes_twice(where: Layout) -> bool:
    """Whether two indices address the same element.

    >>> from aotviz.ir.view_and_mutation import Layout
    >>> writes_twice(Layout((3, 2), (1, 1), 0)), writes_twice(Layout((2, 3), (1, 2), 0))
    (True, False)
    """
    dims = sorted((stride, size) for size, stride in zip(where.size, where.stride, strict=True) if size > 1)
    if 0 in where.size or _are_nested(dims):
        return False
    places = {0}
    for stride, size in dims:
        fresh = {place + k * stride for place in places for k in range(size)}
        if len(fresh) < len(places) * size or len(fresh) > _MOST_BYTES:
            return True
        places = fresh
    return False


def _are_nested(dims: Sequence[tuple[int, int]]) -> bool:
    """Whether each stride exceeds the extent of the dimensions with smaller strides, as in any slice of a tensor."""
    reach = 0
    for stride, size in dims:
        if stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


def _ask_eager(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], given: Sequence[Any], root: Root, lies: Lies
) -> None:
    """Run the operator on zeros with the same layouts and the same sharing of memory."""
    ends: dict[int, int] = {}
    for tensor in given:
        end = span(lies(tensor), tensor.dtype)[1]
        ends[id(root(tensor))] = max(end, ends.get(id(root(tensor)), 0))
    if sum(ends.values()) > _MOST_BYTES:
        return
    flat, spec = pytree.tree_flatten((args, dict(kwargs)))
    with dispatch.without_modes(), torch.no_grad():
        memory = {key: torch.zeros(end, dtype=torch.uint8).untyped_storage() for key, end in ends.items()}

        def real(value: Any) -> Any:
            if not functional.is_functional(value):
                return value
            where = lies(value)
            empty: Any = torch.empty(0, dtype=value.dtype)
            return empty.set_(memory[id(root(value))], where.offset, where.size, where.stride)

        real_args, real_kwargs = pytree.tree_unflatten([real(value) for value in flat], spec)
        operator(*real_args, **real_kwargs)
