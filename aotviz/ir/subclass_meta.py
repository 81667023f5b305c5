"""What a compiled program must know about tensor subclasses (SYSTEM.md A5, C4).

A graph takes and returns plain tensors. A caller passes a subclass: a tensor made of inner tensors, which may be
subclasses themselves. A plan says which of the graph's values one value of the caller becomes. A `PlainTensorMeta` is
one value. A `SubclassCreationMeta` is the values of its parts, in order, followed by those sizes and strides of the
whole that are known only in the call. `at_run_time` returns the plan that the generated wrapper keeps. It has no fake
tensors and no symbols, and its type is different, so that the two plans cannot be confused.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aotviz.ir.spelling import attribute


def leads_to_tensor(path: str) -> bool:
    """Whether an entry of `paths()` leads to a part, not to a size or stride."""
    return re.search(r"\.(?:size|stride)\(\d+\)$", path) is None


@dataclass(frozen=True)
class PlainTensorMeta:
    """One value of the graph, as it is."""

    @property
    def count(self) -> int:
        """How many of the graph's values it becomes."""
        return 1

    def paths(self) -> Iterator[str]:
        """For each of those values, the path to it from the whole: "" here, ".a" or ".size(0)" in a subclass."""
        yield ""

    def at_run_time(self) -> PlainTensorMeta:
        return self


@dataclass(frozen=True)
class OpaqueMeta:
    """An attribute that is not a tensor, such as a device mesh. The graph has no value for it."""

    value: Any
    count = 0

    def paths(self) -> Iterator[str]:
        yield from ()

    def at_run_time(self) -> OpaqueMeta:
        return self


class _Laid:
    """What the plans of a trace and of a call have in common."""

    attrs: tuple[tuple[str, Any], ...]
    symbols: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        return sum(plan.count for _, plan in self.attrs) + len(self.symbols)

    def paths(self) -> Iterator[str]:
        for name, plan in self.attrs:
            yield from (f"{attribute(name)}{path}" for path in plan.paths())
        yield from (f".{kind}({dimension})" for kind, dimension in self.symbols)


@dataclass(frozen=True)
class SubclassCreationMeta(_Laid):
    """A subclass as it was traced."""

    type: type
    attrs: tuple[tuple[str, Plan], ...]  # one per part
    context: Any  # from `__tensor_flatten__`, for `__tensor_unflatten__`
    outer_size: tuple[Any, ...]
    outer_stride: tuple[Any, ...]
    symbols: tuple[tuple[str, int], ...]  # ("size" or "stride", dimension) of those among the values of the graph

    def at_run_time(self) -> RuntimeSubclass:
        """The same plan without anything that belongs to the trace."""

        def known(numbers: tuple[Any, ...]) -> tuple[int | None, ...]:
            return tuple(n if isinstance(n, int) else None for n in numbers)

        return RuntimeSubclass(
            self.type,
            tuple((name, plan.at_run_time()) for name, plan in self.attrs),
            self.context,
            known(self.outer_size),
            known(self.outer_stride),
            self.symbols,
        )


@dataclass(frozen=True)
class RuntimeSubclass(_Laid):
    """How the wrapper takes a subclass apart and puts one together."""

    type: type
    attrs: tuple[tuple[str, RuntimePlan], ...]
    context: Any
    outer_size: tuple[int | None, ...]  # None where the graph returns it
    outer_stride: tuple[int | None, ...]
    symbols: tuple[tuple[str, int], ...]


Plan = PlainTensorMeta | OpaqueMeta | SubclassCreationMeta
RuntimePlan = PlainTensorMeta | OpaqueMeta | RuntimeSubclass


@dataclass(frozen=True)
class SubclassMeta:
    """The plans of everything that enters or leaves a program's graphs, at run time."""

    inputs: tuple[RuntimePlan, ...]  # one per graph input as autograd sees it
    slots: tuple[RuntimePlan, ...]  # one per slot
    tangents: tuple[RuntimePlan, ...]  # one per differentiable slot; () for inference
    gradients: tuple[RuntimePlan | None, ...]  # one per input; None for no gradient; () for inference


class Wrapping(ABC):
    """A rewrite inside of the `autograd.Function`: autograd sees the caller's tensors, and the graph sees their parts.

    `caller` returns the call as autograd sees it. The other methods write lines of the wrapper that convert between
    the caller's tensors and their parts.
    """

    meta: SubclassMeta

    @abstractmethod
    def caller(self, call: Any) -> Any: ...

    @abstractmethod
    def unwrap(self, emit: Any, variables: list[str]) -> list[str]: ...

    @abstractmethod
    def wrap(self, emit: Any, values: str, inputs: list[str], recorded: bool) -> list[str]: ...

    @abstractmethod
    def expect_tangents(self, emit: Any, names: list[str]) -> None: ...

    @abstractmethod
    def unwrap_tangents(self, emit: Any, names: list[str]) -> list[str]: ...

    @abstractmethod
    def wrap_gradients(self, emit: Any, values: str) -> list[str]: ...
