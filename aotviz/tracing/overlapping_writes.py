"""Writes to a tensor with overlapping elements, or to one that overlaps an operand in another place.

Eager raises for most of them: `x.expand(3, 4).add_(1)` would write each element three times, and `x[1:].add_(x[:-1])`
would read what it has already written. A functional trace computes a result for all of them, because it reads first and
writes afterwards. So for such a write the operator runs eagerly on zeros with the same layout, to see if it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.ir.view_and_mutation import Layout
from aotviz.torch_private import dispatch, pytree
from aotviz.tracing import functional
from aotviz.tracing.overlap import overlap, span
from aotviz.tracing.views import layout

_SAME_TO_ALL = ("aten.fill_", "aten.zero_")  # writing an element twice does no harm
_MOST_BYTES = 1 << 24


def refuse(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], written: Iterable[Any], root: Callable[[Any], Any]
) -> None:
    """Raise what eager raises for such a write. `root` returns the tensor that owns the memory of a tensor.

    Raises:
        RuntimeError: eager's, where eager refuses the write.
        Refused: "overlapping write", where eager's result depends on the order of its writes.
    """
    given = [value for value in pytree.tree_flatten((args, dict(kwargs)))[0] if functional.is_functional(value)]
    if str(operator.overloadpacket) in _SAME_TO_ALL or not all(layout(value).concrete for value in given):
        return
    targets = [value for value in written if functional.is_functional(value)]
    with dispatch.without_modes():
        if not any(writes_twice(layout(target)) or _reads_of(target, given, root) for target in targets):
            return
    if not any(isinstance(value, torch.Generator) for value in kwargs.values()):
        _ask_eager(operator, args, kwargs, given, root)
    raise Refused("overlapping write", str(operator.overloadpacket).removeprefix("aten."))


def _reads_of(target: Any, given: Sequence[Any], root: Callable[[Any], Any]) -> bool:
    """Whether another operand overlaps the written tensor in another place."""
    whole = root(target)
    others = [other for other in given if other is not target and root(other) is whole]
    return any(not _are_in_one_place(other, target, whole) and overlap(target, other) for other in others)


def _are_in_one_place(one: Any, other: Any, whole: Any) -> bool:
    """Whether two tensors in the memory of `whole` have the same elements. The strides of dimensions of size one do not
    matter, and can differ in a trace. The offset of a view that is taken after a write counts from the beginning of
    `whole`."""
    where, there = layout(one), layout(other)
    if _steps(where) != _steps(there):
        return False
    apart = abs(where.offset - there.offset)
    return apart == 0 or (functional.data_mutated(whole) and apart == layout(whole).offset)


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
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], given: Sequence[Any], root: Callable[[Any], Any]
) -> None:
    """Run the operator on zeros with the same layouts and the same sharing of memory."""
    ends: dict[int, int] = {}
    for tensor in given:
        end = span(layout(tensor), tensor.dtype)[1]
        ends[id(root(tensor))] = max(end, ends.get(id(root(tensor)), 0))
    if sum(ends.values()) > _MOST_BYTES:
        return
    flat, spec = pytree.tree_flatten((args, dict(kwargs)))
    with dispatch.without_modes(), torch.no_grad():
        memory = {key: torch.UntypedStorage(end).fill_(0) for key, end in ends.items()}

        def real(value: Any) -> Any:
            if not functional.is_functional(value):
                return value
            where = layout(value)
            empty = torch.empty(0, dtype=value.dtype)
            return empty.set_(memory[id(root(value))], where.offset, where.size, where.stride)

        real_args, real_kwargs = pytree.tree_unflatten([real(value) for value in flat], spec)
        operator(*real_args, **real_kwargs)
