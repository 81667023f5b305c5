"""What a compiled program must know about tensor subclasses (docs/design/system.md A5, C4).

A graph takes and returns plain tensors. A caller passes a subclass: a tensor made of inner tensors, which may be
subclasses themselves. A plan says which of the graph's values one value of the caller becomes. A `PlainTensorMeta` is
one value. A `SubclassCreationMeta` is the values of its parts, in order, followed by those sizes and strides of the
whole that are known only in the call. The generated wrapper keeps plans, so they have no fake tensors and no symbols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

import torch

from aotviz.ir import wrapper_subclasses
from aotviz.ir.spelling import attribute


def leads_to_tensor(path: str) -> bool:
    """Whether an entry of `paths()` leads to a part, not to a size or stride."""
    return re.search(r"\.(?:size|stride)\(\d+\)$", path) is None


@dataclass(frozen=True)
class PlainTensorMeta:
    """One value of the graph, as it is."""

    count = 1  # how many of the graph's values it becomes

    def paths(self) -> Iterator[str]:
        """For each of those values, the path to it from the whole: "" here, ".a" or ".size(0)" in a subclass."""
        yield ""


@dataclass(frozen=True)
class OpaqueMeta:
    """An attribute that is not a tensor, such as a device mesh. The graph has no value for it."""

    value: Any
    count = 0

    def paths(self) -> Iterator[str]:
        yield from ()


@dataclass(frozen=True)
class SubclassCreationMeta:
    """The parts of a subclass, and what `__tensor_unflatten__` needs to build it from them. Sizes and strides that vary
    are None."""

    type: type
    attrs: tuple[tuple[str, Any], ...]  # (name, plan), one per part
    context: Any  # from `__tensor_flatten__`
    outer_size: tuple[int | None, ...]
    outer_stride: tuple[int | None, ...]
    symbols: tuple[tuple[str, int], ...]  # ("size" or "stride", dimension) of those among the values of the graph

    @property
    def count(self) -> int:
        return sum(plan.count for _, plan in self.attrs) + len(self.symbols)

    def paths(self) -> Iterator[str]:
        for name, plan in self.attrs:
            yield from (f"{attribute(name)}{path}" for path in plan.paths())
        yield from (f".{kind}({dimension})" for kind, dimension in self.symbols)


Plan = PlainTensorMeta | OpaqueMeta | SubclassCreationMeta


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
    attrs = []
    for name in names:
        held = wrapper_subclasses.attribute(value, name)
        attrs.append((name, plan(held, place, knows) if isinstance(held, torch.Tensor) else OpaqueMeta(held)))
    symbols = []
    for kind, dimension, symbol in wrapper_subclasses.symbols(value):
        if not knows(symbol):
            place(symbol)
            symbols.append((kind, dimension))
    sizes = value.size(), value.stride()
    size, stride = (tuple(None if wrapper_subclasses.varies(n) else int(n) for n in numbers) for numbers in sizes)
    return SubclassCreationMeta(type(value), tuple(attrs), context, size, stride, tuple(symbols))


def tree(one: Plan, path: str = "") -> Iterator[tuple[str, Plan]]:
    """(path, plan) of a value and of all that is inside it, from the outside in."""
    yield path, one
    for name, part in one.attrs if isinstance(one, SubclassCreationMeta) else ():
        yield from tree(part, path + attribute(name))


def spans(plans: Sequence[Plan | None]) -> list[range]:
    """The positions of the values of each plan, one after the other; None stands for one value."""
    counts = [1 if plan is None else plan.count for plan in plans]
    return [range(end - count, end) for end, count in zip(accumulate(counts), counts, strict=True)]


TensorLayout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]  # size, stride, dtype, device


@dataclass(frozen=True)
class SubclassLayout:
    """What a subclass is, without its values. Two are equal if a graph cannot tell the subclasses apart."""

    plan: Plan
    parts: tuple[TensorLayout, ...]

    @staticmethod
    def of(value: torch.Tensor) -> SubclassLayout:
        alone = value.detach() if value.requires_grad else value  # some classes put `requires_grad` into the context
        parts = wrapper_subclasses.parts(alone)
        layouts = ((tuple(part.size()), tuple(part.stride()), part.dtype, part.device) for part in parts)
        return SubclassLayout(plan(alone), tuple(layouts))


def made_by(how: Plan, plain: Iterator[torch.Tensor]) -> Any:
    """A value of this plan from plain tensors, taken in order. Its sizes and strides are known."""
    if isinstance(how, PlainTensorMeta):
        return next(plain)
    if isinstance(how, OpaqueMeta):
        return how.value
    attributes = {name: made_by(part, plain) for name, part in how.attrs}
    kind: Any = how.type
    return kind.__tensor_unflatten__(attributes, how.context, how.outer_size, how.outer_stride)


def laid_out(value: Any, how: Plan) -> Iterator[Any]:
    """The flat values of `value` by its plan, in order."""
    if not isinstance(how, SubclassCreationMeta):
        yield from (value,) * how.count
        return
    for name, part in how.attrs:
        yield from laid_out(getattr(value, name), part)
    numbers = {"size": value.size(), "stride": value.stride()}
    yield from (numbers[kind][dimension] for kind, dimension in how.symbols)


def flat_results(results: Sequence[Any]) -> list[Any]:
    """The results of a graph as one list: a tuple, which stands for a subclass, is replaced by its parts."""
    return [part for result in results for part in (result if isinstance(result, tuple) else (result,))]


@dataclass(frozen=True)
class SubclassMeta:
    """The plans of everything that enters or leaves a program's graphs."""

    inputs: tuple[Plan, ...]  # one per graph input as autograd sees it
    slots: tuple[Plan, ...]  # one per slot
    tangents: tuple[Plan, ...]  # one per differentiable slot; () for inference
    gradients: tuple[Plan | None, ...]  # one per input; None for no gradient; () for inference


@runtime_checkable
class Wrapping(Protocol):
    """A rewrite inside of the `autograd.Function`: autograd sees the caller's tensors, and the graph sees their parts.

    `caller` returns the call as autograd sees it. The other methods write lines of the wrapper that convert between
    the caller's tensors and their parts.
    """

    meta: SubclassMeta

    def caller(self, call: Any) -> Any: ...
    def unwrap(self, emit: Any, variables: list[str]) -> list[str]: ...
    def wrap(self, emit: Any, values: str, inputs: list[str], recorded: bool) -> list[str]: ...
    def expect_tangents(self, emit: Any, names: list[str]) -> None: ...
    def unwrap_tangents(self, emit: Any, names: list[str]) -> list[str]: ...
    def wrap_gradients(self, emit: Any, values: str) -> list[str]: ...
