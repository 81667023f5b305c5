"""`out=` tensors whose shape differs from the result: eager resizes them in place before it writes.

A functional trace would write a result of one shape to a tensor of another. So such an operator first runs on fake
tensors with an empty `out=`, which shows the shape of the result, and the trace resizes the `out=` tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import dispatch, operators, pytree
from aotviz.tracing import functional


def misfits(operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Each `out=` tensor whose shape differs from that of its result, and the result's shape."""
    names = operators.names_of_outs(operator)
    outs = {name: kwargs[name] for name in names if functional.is_functional(kwargs.get(name))}
    if not outs or len(outs) < len(names):
        return
    flat, spec = pytree.tree_flatten((args, {name: value for name, value in kwargs.items() if name not in outs}))
    if any(map(is_subclass, (*flat, *outs.values()))):
        return
    with dispatch.without_modes():
        fake_args, rest = pytree.tree_unflatten(list(map(functional.stand_in, flat)), spec)
        empty = {name: functional.stand_in(out, empty=True) for name, out in outs.items()}
        try:
            operator(*fake_args, **rest, **empty)
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            return  # the trace raises the same
    for name, out in outs.items():
        if tuple(empty[name].shape) != tuple(out.shape):
            yield out, tuple(map(int, empty[name].shape))  # a traced `resize_` does not accept symbols
