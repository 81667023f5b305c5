"""Is a compiled program good for this call?

A program holds for calls like the one that it was traced with. What must be alike is its signature: the structure
of the arguments, the layout, dtype and device of each tensor, whether it requires grad, which arguments are one
tensor or share memory, each plain value, and the modes that tracing took note of (grad, autocast, inference). A
program compiled with dynamic shapes replaces the layouts by the guards that its symbols gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.torch_private import context, pytree
from aotviz.torch_private.fakes import SymbolGuards

Signature = tuple[Any, ...]


@dataclass(frozen=True)
class Call:
    """One call, flat. `lifted` counts the parameters and buffers in front, `training` says of each module its mode."""

    flat: Sequence[Any]
    lifted: int
    spec: Any
    training: tuple[bool, ...] = ()

    @classmethod
    def of(
        cls,
        lifted: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        training: tuple[bool, ...] = (),
    ) -> Call:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        return cls([*lifted, *leaves], len(lifted), spec, training)

    def signature(self) -> Signature:
        """Everything that a program with static shapes depends on."""
        return (self.kind(), self.shapes())

    def kind(self) -> Signature:
        """Everything but sizes, strides and the values of ints."""
        facts = tuple(map(_kind, self.flat))
        return (self.spec, facts, _sharing(self.flat[self.lifted :]), self.training, _modes())

    def shapes(self) -> Signature:
        return tuple(map(_shape, self.flat))


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (type(value), value.dtype, value.device, value.requires_grad, value.is_leaf, value.layout, value.ndim)
    if type(value) is int:
        return int
    if type(value) is float:
        return (float, repr(value))  # -0.0 equals 0.0 and is another number; nan is one, and equals nothing
    try:
        hash(value)
    except TypeError:
        return (type(value), id(value))
    return (type(value), value)


def _shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return value.shape
        return (value.shape, value.stride(), value.storage_offset() if value._is_view() else 0)
    return value if type(value) is int else None


def _sharing(values: Sequence[Any]) -> Signature:
    """For each argument, the first that is the same tensor and the first over the same memory."""
    objects: dict[int, int] = {}
    memory: dict[int, int] = {}
    pattern: list[Any] = []
    for index, value in enumerate(values):
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        address = value.untyped_storage().data_ptr()
        same = objects.setdefault(id(value), index)
        near = memory.setdefault(address, index) if address else index
        if same != index or near != index:
            pattern.append((index, same, near))
    return tuple(pattern)


def _modes() -> Signature:
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), context.autocast_state())


@dataclass
class StaticGuard:
    """Holds for calls of one signature."""

    signature: Signature

    def holds(self, call: Call) -> bool:
        return self.signature == call.signature()

    def failure(self, call: Call, names: Sequence[str]) -> str:
        """In words, the first difference between the call that was compiled and this one."""
        kind, shapes = call.kind(), call.shapes()
        if self.signature[0] != kind:
            return _kind_difference(self.signature[0], kind, names)
        for name, before, now in zip(names, self.signature[1], shapes, strict=False):
            if before != now:
                return f"{name} changed from {_spoken(before)} to {_spoken(now)}"
        return "nothing that is guarded"


@dataclass
class DynamicGuard:
    """Holds for calls of one kind whose sizes fulfil what the symbols were found to require."""

    kind: Signature
    symbols: SymbolGuards

    def holds(self, call: Call) -> bool:
        return self.kind == call.kind() and self.symbols.hold(call.flat)

    def failure(self, call: Call, names: Sequence[str]) -> str:
        kind = call.kind()
        if self.kind != kind:
            return _kind_difference(self.kind, kind, names)
        return f"the sizes do not fulfil {self.symbols.text}"


def _kind_difference(before: Signature, now: Signature, names: Sequence[str]) -> str:
    if before[0] != now[0]:
        return "the structure of the arguments changed"
    for name, was, value in zip(names, before[1], now[1], strict=False):
        if was != value:
            return f"{name} changed from {_spoken(was)} to {_spoken(value)}"
    if before[2] != now[2]:
        return "other arguments are the same tensor or share memory"
    if before[3] != now[3]:
        return "a module changed between train() and eval()"
    return "grad mode, inference mode or autocast changed"


def _spoken(fact: Any) -> str:
    if isinstance(fact, tuple):
        return "(" + ", ".join(str(part).removeprefix("torch.") for part in fact) + ")"
    return str(fact)
