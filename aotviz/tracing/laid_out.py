"""Flattening tensor subclasses into the values that a graph takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from aotviz.ir import wrapper_subclasses
from aotviz.ir.subclass_meta import OpaqueMeta, PlainTensorMeta, Plan, SubclassCreationMeta


def plan(
    value: Any,
    place: Callable[[Any], Any] = lambda value: None,
    knows: Callable[[Any], bool] = wrapper_subclasses.ragged,
) -> Plan:
    """The plan for flattening one value. `place` is called with each flat value, in order.

    Symbolic sizes that are known otherwise (`knows`) are not among these: the graph knows those of an input, the class
    those of a result.
    """
    if not wrapper_subclasses.is_subclass(value):
        place(value)
        return PlainTensorMeta()
    names, context = wrapper_subclasses.anatomy(value)
    attrs = tuple((name, _attribute(wrapper_subclasses.attribute(value, name), place, knows)) for name in names)
    symbols = []
    for kind, dimension, symbol in wrapper_subclasses.symbols(value):
        if not knows(symbol):
            place(symbol)
            symbols.append((kind, dimension))
    return SubclassCreationMeta(
        type=type(value),
        attrs=attrs,
        context=context,
        outer_size=tuple(value.size()),
        outer_stride=tuple(value.stride()),
        symbols=tuple(symbols),
    )


def laid_out(value: Any, how: Plan) -> Iterator[Any]:
    """The flat values of `value` by its plan, in order."""
    if not isinstance(how, SubclassCreationMeta):
        yield from (value,) * how.count
        return
    for name, part in how.attrs:
        yield from laid_out(getattr(value, name), part)
    numbers = {"size": value.size(), "stride": value.stride()}
    yield from (numbers[kind][dimension] for kind, dimension in how.symbols)


def _attribute(value: Any, place: Callable[[Any], Any], knows: Callable[[Any], bool]) -> Plan:
    return plan(value, place, knows) if isinstance(value, torch.Tensor) else OpaqueMeta(value)


def flat_results(results: Sequence[Any]) -> list[Any]:
    """The results of a graph as one list: a tuple, which stands for a subclass, is replaced by its parts."""
    return [part for result in results for part in (result if isinstance(result, tuple) else (result,))]
