"""The function `inputs()` of a file: arguments with the layouts that a program was compiled for.

Only layouts are known, so floating-point elements are random, and all others are zero: a zero is an index into
anything. Tensors that shared memory when the program was compiled share it here, at the same offsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir import symbolic_sizes
from aotviz.ir.forms import GraphCall
from aotviz.ir.spelling import literal, spoken
from aotviz.ir.storages import reinterpreted
from aotviz.ir.view_and_mutation import InputAliasInfo
from aotviz.ir.wrapper_subclasses import anatomy, is_subclass
from aotviz.runtime.codegen import Source
from aotviz.standalone.graph_functions import type_of
from aotviz.standalone.spelled import Spelling
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional


@dataclass(frozen=True)
class _Memory:
    """The variable of a tensor that several arguments are views of, its expression, and the argument that it is, or of
    which it plays the base."""

    name: str
    dtype: torch.dtype
    text: str
    whole: torch.Tensor | None


class Examples:
    """Writes the examples of one call: a function, and the parameters and buffers that the program reads itself."""

    def __init__(self, spelling: Spelling, call: GraphCall) -> None:
        self.spelling, self.call = spelling, call
        self.names = Source()
        self.made: dict[int, str] = {}  # position of an argument -> its variable
        self.storages: dict[Any, list[int]] = {}
        for i, value in enumerate(call.args):
            if isinstance(value, torch.Tensor) and not is_subclass(value) and call.duplicate_of[i] is None:
                self.storages.setdefault(functional.storage(value), []).append(i)

    def lines(self, positions: Sequence[int]) -> list[str]:
        """Statements that make some of the arguments."""
        found: list[str] = []
        memory: dict[int, _Memory] = {}
        for group in self.storages.values():
            if set(group) & {*positions} and (len(group) > 1 or self._info(group[0]).asks_for_root):
                subject = ", ".join(self._called(i) for i in group)
                with self.spelling.within(f"the memory of {subject}"):
                    made = self._memory(group)
                found += [f"# {spoken(subject)}: one tensor, or views of it", f"{made.name} = {made.text}"]
                memory.update(dict.fromkeys(group, made))
        for i in positions:
            first = self.call.duplicate_of[i]
            self.made[i] = name = self._name(self._called(i))
            with self.spelling.within(f"the argument {self._called(i)}"):
                text = self.made[first] if first is not None else self._value(i, memory.get(i))
            found.append(f"{name} = {text}")
        return found

    def _name(self, hint: str) -> str:
        return self.spelling.local(self.names, hint)

    def _called(self, position: int) -> str:
        return str(self.call.descriptors[position])

    def _info(self, position: int) -> InputAliasInfo:
        return self.call.user_input_info.input_info[position]

    def _value(self, position: int, memory: _Memory | None) -> str:
        value = self.call.args[position]
        if symbolic_sizes.is_symbolic(value):
            return self.spelling.of(value.node.hint)
        if not isinstance(value, torch.Tensor):
            return self.spelling.of(value)
        info = self._info(position)
        if memory is None:
            return self._with_gradient(self._fresh(value), info.requires_grad, info.is_leaf)
        text = self._view(value, memory)
        return f"{text}.detach().requires_grad_()" if info.requires_grad and info.is_leaf else text

    def _with_gradient(self, text: str, requires_grad: bool, is_leaf: bool) -> str:
        if not requires_grad:
            return text
        return f"{text}.requires_grad_()" if is_leaf else f"{text}.requires_grad_().clone()"

    def _layout(self, value: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        size, stride = (tuple(map(symbolic_sizes.hint, numbers)) for numbers in (value.size(), value.stride()))
        return size, stride, symbolic_sizes.hint(value.storage_offset())

    def _fresh(self, value: Any) -> str:
        """A tensor with memory of its own."""
        if is_subclass(value):
            return self._subclass(value)
        if value.layout is not torch.strided:
            raise self.spelling.refuse(f"it has the layout {value.layout}")
        size, stride, offset = self._layout(value)
        if offset or _extent(size, stride) < math.prod(size):
            return f"{self._elements(value, offset + _extent(size, stride))}.as_strided({size}, {stride}, {offset})"
        if value.is_contiguous():
            return self._elements(value, size)
        made = f"{self.spelling.torch}.empty_strided({size}, {stride}, {self._kind(value)})"
        return f"{made}.uniform_()" if _is_random(value.dtype) else f"{made}.zero_()"

    def _elements(self, value: torch.Tensor, size: Any) -> str:
        """A dense tensor, of numbers between 0 and 1: a variance is not negative."""
        return f"{self.spelling.torch}.{'rand' if _is_random(value.dtype) else 'zeros'}({size}, {self._kind(value)})"

    def _kind(self, value: torch.Tensor) -> str:
        return f"dtype={self.spelling.of(value.dtype)}, device={literal(str(value.device))}"

    def _memory(self, group: Sequence[int]) -> _Memory:
        """The tensor that some arguments are views of: the one that they are views of in the recorded call, or a flat
        one over their storage."""
        name, values = self._name("memory"), [self.call.args[i] for i in group]
        bases = [(value, base_of(value)) for value in values]
        wholes = {id(whole): whole for value, base in bases for whole in [value if base is None else base]}
        whole = next(iter(wholes.values()))
        if len(wholes) == 1 and not self._layout(whole)[2]:
            text = self._with_gradient(self._fresh(whole), whole.requires_grad, whole.is_leaf)
            return _Memory(name, whole.dtype, text, whole)
        widest = max(values, key=lambda value: value.dtype.itemsize)
        text = self._elements(widest, -(-max(map(self._end, values)) // widest.dtype.itemsize))
        is_grown = any(self._info(i).requires_grad and not self._info(i).is_leaf for i in group)
        return _Memory(name, widest.dtype, self._with_gradient(text, is_grown, False), None)

    def _end(self, value: torch.Tensor) -> int:
        """How many bytes of its storage a tensor reaches over."""
        size, stride, offset = self._layout(value)
        return (_extent(size, stride) + offset) * value.dtype.itemsize

    def _view(self, value: torch.Tensor, memory: _Memory) -> str:
        if value is memory.whole:
            return memory.name
        size, stride, offset = self._layout(value)
        name = memory.name
        if value.dtype is not memory.dtype:
            name = f"{self.spelling.of(reinterpreted)}({name}, {self.spelling.of(value.dtype)})"
        return f"{name}.as_strided({size}, {stride}, {offset})"

    def _subclass(self, value: Any) -> str:
        """A subclass, built from its parts."""
        names, context = anatomy(value)
        parts = {name: getattr(value, name) for name in names}
        if not all(isinstance(part, torch.Tensor) for part in parts.values()):
            raise self.spelling.refuse(f"it is a {type(value).__name__} with attributes that are no tensors")
        made = ", ".join(f"{literal(name)}: {self._fresh(part)}" for name, part in parts.items())
        size, stride, _ = self._layout(value)
        kind = self.spelling.of(type(value))
        return f"{kind}.__tensor_unflatten__({{{made}}}, {self.spelling.of(context)}, {size}, {stride})"

    def about(self, position: int) -> str:
        """What an argument is, for a person."""
        value = self.call.args[position]
        found = [type_of(value) or repr(value)]
        if isinstance(value, torch.Tensor):
            if str(value.device) != "cpu":
                found.append(str(value.device))
            if value.requires_grad:
                found.append("requires grad")
            if self._info(position).mutated:
                found.append("written")
        return spoken(f"{self._called(position)}: {', '.join(found)}")


def _is_random(dtype: torch.dtype) -> bool:
    return (dtype.is_floating_point or dtype.is_complex) and dtype.itemsize > 1 and dtype is not torch.complex32


def _extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements a tensor reaches over."""
    return 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
