"""Is a compiled program good for this call?

A program holds for calls like the one that it was traced with. What must be alike is its signature: the structure
of the arguments, the layout, dtype and device of each tensor, whether it requires grad, which arguments are one
tensor or share memory, each plain value, what modules hold besides tensors, and the modes that tracing took note of
(grad, autocast, inference, deterministic algorithms). A program compiled with dynamic shapes replaces the layouts by
the guards that its symbols gathered.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.reached import contents, difference
from aotviz.recorder.torch_trace.guards import ALSO
from aotviz.torch_private import (
    attributes,
    context,
    functional,
    pytree,
    saved_hooks,
    script_objects,
    subclasses,
    tensors,
)
from aotviz.torch_private.fakes import SymbolGuards

Signature = tuple[Any, ...]

_COMMON = {torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)}
KIND_FACTS = ("type", "dtype", "device", "requires_grad", "is_leaf", "layout", "ndim")  # what `_kind` gives of a tensor
SHAPE_FACTS = ("shape", "stride", "storage_offset")  # what `_shape` does


@dataclass(frozen=True)
class Call:
    """One call, flat. `lifted` counts the parameters and buffers in front, `modules` says what else these hold.

    Which inputs are one tensor or share memory is compared behind the first `lifted` ones.
    """

    flat: Sequence[Any]
    lifted: int
    spec: Any
    modules: tuple[Any, ...] = ()
    settings: tuple[Any, ...] = ()  # plain values that the function reads from outside, or of objects it takes

    @classmethod
    def of(
        cls,
        lifted: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        modules: tuple[Any, ...] = (),
        reached: Sequence[Any] = (),
        settings: tuple[Any, ...] = (),
        attributes_read: frozenset[Any] = frozenset(),
    ) -> Call:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if not _COMMON.issuperset(map(type, leaves)):
            objects = [leaf for leaf in leaves if type(leaf) not in _COMMON and not isinstance(leaf, torch.Tensor)]
            settings += tuple(("an argument", contents(leaf, attributes_read)) for leaf in objects)
        own = 0 if reached else len(lifted)  # what is reached may be a parameter too
        return cls([*lifted, *reached, *leaves], own, spec, modules, settings)

    def signature(self) -> Signature:
        """Everything that a program with static shapes depends on."""
        return (self.kind(), self.shapes())

    def kind(self) -> Signature:
        """Everything but sizes, strides and the values of ints."""
        facts = tuple(map(_kind, self.flat))
        return (self.spec, facts, _sharing(self.flat[self.lifted :]), self.modules, _modes(), self.settings)

    def shapes(self) -> Signature:
        return tuple(map(_shape, self.flat))


def _kind(value: Any) -> Any:
    if subclasses.is_subclass(value):
        names, inner = subclasses.anatomy(value)
        parts = tuple(_kind(subclasses.attribute(value, name)) for name in names)
        return (type(value), value.dtype, value.device, value.requires_grad, value.is_leaf, inner, parts)
    if isinstance(value, torch.Tensor):
        return (type(value), value.dtype, value.device, value.requires_grad, value.is_leaf, value.layout, value.ndim)
    if type(value) is int:
        return int
    if type(value) is float:
        return (float, repr(value))  # -0.0 equals 0.0 and is another number; nan is one, and equals nothing
    if script_objects.is_object(value):
        return script_objects.contents(value)
    try:
        hash(value)
    except TypeError:
        return (type(value), _Same(value))
    return (type(value), value)


class _Same:
    """Equal to what holds the very same object, and to nothing once that is gone."""

    __slots__ = ("_held",)

    def __init__(self, value: Any) -> None:
        self._held: Callable[[], Any]
        try:
            self._held = weakref.ref(value)
        except TypeError:  # a set, say
            self._held = lambda: value

    def __eq__(self, other: object) -> bool:
        mine = self._held()
        return isinstance(other, _Same) and mine is not None and mine is other._held()

    __hash__ = None  # type: ignore[assignment]


def _shape(value: Any) -> Any:
    if subclasses.is_subclass(value):
        return (value.shape, value.stride(), *map(_shape, subclasses.parts(value)))
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return value.shape
        return (value.shape, value.stride(), 0 if value._base is None else value.storage_offset())
    return value if type(value) is int else None


def _sharing(values: Sequence[Any]) -> Signature:
    """For each argument, the first that is the same tensor and the first over the same memory.

    A subclass has no memory but that of its parts, which count as arguments behind it.
    """
    objects: dict[int, int] = {}
    memory: dict[int, int] = {}
    pattern: list[Any] = []
    for index, value in enumerate(_with_parts(values)):
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        if subclasses.is_subclass(value):
            if objects.setdefault(id(value), index) != index:
                pattern.append((index, objects[id(value)]))
            continue
        try:
            address = value.untyped_storage().data_ptr()
        except RuntimeError:  # of a class that hides its memory, and is refused by its name when it is compiled
            continue
        same = objects.setdefault(id(value), index)
        near = memory.setdefault(address, index) if address else index
        if same != index or near != index:
            pattern.append((index, same, near))
    if len(objects) != len(memory):  # different tensors share memory: do they count writes together?
        return tuple(pattern), functional.counters(values), _overlapping(values)
    return tuple(pattern), None, ()


def _overlapping(values: Sequence[Any]) -> Signature:
    """Tensors whose bytes meet: for each, the first of them that it is connected with, and how far behind it lies."""
    spans = []
    for index, value in enumerate(_with_parts(values)):
        plain = isinstance(value, torch.Tensor) and not subclasses.is_subclass(value)
        if plain and value.layout is torch.strided and value.numel() and value.untyped_storage().data_ptr():
            start, end = tensors.span(value)
            address = value.untyped_storage().data_ptr()
            spans.append((address + start, address + end, index))
    found = []
    first, begin, reach = 0, 0, 0
    for start, end, index in sorted(spans):
        if start >= reach:
            first, begin, reach = index, start, end
            continue
        reach = max(reach, end)
        found.append((index, first, start - begin))
    return tuple(found)


def _with_parts(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        yield value
        if subclasses.is_subclass(value):
            yield from subclasses.parts(value)


def _modes() -> Signature:
    hooks = saved_hooks.inlineable()  # graphs become part of the program; others autograd calls at each run
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled())
    made = (torch.get_default_dtype(), context.default_device())
    return (*modes, *made, context.autocast_state(), None if hooks is None else tuple(map(id, hooks)))


@dataclass
class StaticGuard:
    """Holds for calls of one signature."""

    signature: Signature

    def holds(self, call: Call) -> bool:
        return self.signature == call.signature()

    def failure(self, call: Call, names: Sequence[str]) -> str:
        """In words, how the call differs from the one that was compiled (explain/ reads them)."""
        kind, shapes = call.kind(), call.shapes()
        told = list(_kind_differences(self.signature[0], kind, names, call))
        for name, before, now in zip(names, self.signature[1], shapes, strict=False):
            if f"{name}.ndim changed" not in ALSO.join(told):
                told += _differences(name, before, now, SHAPE_FACTS)
        return ALSO.join(told) or "nothing that is guarded"


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
            return ALSO.join(_kind_differences(self.kind, kind, names, call))
        return f"the sizes do not fulfil {self.symbols.text}"


def _kind_differences(before: Signature, now: Signature, names: Sequence[str], call: Call) -> Iterator[str]:
    if before[0] != now[0]:
        yield "the structure of the arguments changed"
        return
    for name, was, value in zip(names, before[1], now[1], strict=False):
        yield from _differences(name, was, value, KIND_FACTS)
    if before[2] != now[2]:
        kinds = zip(names, before[1], now[1], strict=False)
        other_kind = {name for name, was, value in kinds if _is_tensor(was) != _is_tensor(value)}
        yield from _sharing_differences(before[2], now[2], _names_with_parts(names, call), other_kind)
    if before[3] != now[3]:
        yield attributes.difference(before[3], now[3])
    if before[5] != now[5]:
        yield difference(before[5], now[5])
    if before[4] != now[4]:
        yield "grad mode, inference mode, autocast, determinism, default dtype or device, or saved-tensor hooks changed"


def _sharing_differences(
    before: Signature, now: Signature, names: Sequence[str], other_kind: Container[str]
) -> Iterator[str]:
    """Of two arguments that lie otherwise to each other than before, how they lay and lie (`_sharing`).

    Nothing of those in `other_kind`, which were no tensors before or are none now.
    """
    was, found = _neighbours(before), _neighbours(now)
    known = sorted({*was, *found, *(first for one in (was, found) for _, first, _ in one.values())})
    known = [index for index in known if index < len(names) and names[index] not in other_kind]
    told = [
        f"{names[one]} and {names[other]} were {_relation(was, one, other)} and are {_relation(found, one, other)}"
        for one, other in itertools.combinations(known, 2)
        if _relation(was, one, other) != _relation(found, one, other)
    ]
    yield from told
    if not told and not other_kind:
        shared = " and ".join(names[index] for index in known) or "arguments"
        yield f"{shared} overlap in memory otherwise than when this was compiled"


def _names_with_parts(names: Sequence[str], call: Call) -> list[str]:
    """The names of the arguments whose memory is compared, as `_with_parts` counts them."""
    found = []
    for name, value in zip(names[call.lifted :], call.flat[call.lifted :], strict=False):
        parts = subclasses.anatomy(value)[0] if subclasses.is_subclass(value) else ()
        found += [name, *(f"{name}.{part}" for part in parts)]
    return found


def _neighbours(sharing: Signature) -> dict[int, tuple[int, int, int]]:
    """Argument -> the first that is the same tensor, the first in the same storage, the first whose bytes it meets."""
    pattern, _, overlapping = sharing
    meets = {index: first for index, first, _ in overlapping}
    found = {index: (rest[0], rest[-1], meets.get(index, rest[0])) for index, *rest in pattern}
    for index, first in meets.items():
        found.setdefault(index, (index, index, first))
    return found


def _relation(neighbours: dict[int, tuple[int, int, int]], one: int, other: int) -> str:
    """How two arguments lie to each other, as explain/guard_failures.py reads it."""
    (same, storage, meets), (same_other, storage_other, meets_other) = (
        neighbours.get(index, (index, index, index)) for index in (one, other)
    )
    if same == same_other:
        return "one tensor"
    if meets == meets_other:
        return "overlapping views of one storage"
    return "apart in one storage" if storage == storage_other else "in separate storages"


def _differences(name: str, before: Any, now: Any, facts: Sequence[str]) -> Iterator[str]:
    """ "x.dtype changed from float32 to float64": of two tensors, the facts in which they differ."""
    if before == now:
        return
    if all(isinstance(fact, tuple) and len(fact) == len(facts) for fact in (before, now)):
        for fact, was, value in zip(facts, before, now, strict=True):
            if was != value:
                yield f"{name}.{fact} changed from {_spoken(was)} to {_spoken(value)}"
    else:
        yield f"{name} changed from {_spoken(before)} to {_spoken(now)}"


def _is_tensor(kind: Any) -> bool:
    """Whether `_kind` said this of a tensor."""
    return isinstance(kind, tuple) and bool(kind) and isinstance(kind[0], type) and issubclass(kind[0], torch.Tensor)


def _spoken(fact: Any) -> str:
    """A fact of `_kind` or `_shape` as the user would write the value."""
    if isinstance(fact, torch.Size):
        return str(tuple(fact))
    if _is_tensor(fact):
        return "a tensor"
    if isinstance(fact, tuple) and fact and isinstance(fact[0], type):
        return str(fact[1]) if fact[0] is float else repr(fact[1]) if fact[1] is None or len(fact) == 2 else str(fact)
    return fact.__name__ if isinstance(fact, type) else str(fact).removeprefix("torch.")
