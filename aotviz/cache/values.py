"""Python values as data: what a program is made of, written in one process and read in another.

A value is a number, a text, or a list that begins with a tag. Reading makes values of the types listed here and nothing
else. Functions and classes are stored by name, and are looked up in the tables of names.py. The fields of our own
dataclasses must have the types that they declare, since some become lines of the generated wrapper.

Fake tensors are numbered, so that one that occurs twice is one again, and those over one storage share it again. They
are made when they are first read: a graph has thousands, and a program that is only run needs few of them. Sizes may be
symbols; both processes number these by their first occurrence among the inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import msgspec
import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from aotviz.cache import bypasses, declared, names
from aotviz.cache.meshes import Meshes
from aotviz.ir.descriptors import PlainInput
from aotviz.ir.symbolic_sizes import expression, is_symbolic
from aotviz.ir.wrapper_subclasses import anatomy, is_subclass
from aotviz.torch_private import distributed, pytree, script_objects, stored_values, tensors
from aotviz.torch_private.dispatch import without_modes
from aotviz.torch_private.fake_tensors import FakeTensor, fake
from aotviz.tracing import functional

_encoder = msgspec.msgpack.Encoder()
_REQUIRES_GRAD, _NO_LEAF, _CONJUGATE, _NEGATIVE = 1, 2, 4, 8  # of a fake
_PLAIN = (type(None), bool, float, str, bytes)
_OURS = "aotviz."
_NAMED_BY_TORCH = (torch.dtype, torch.layout, torch.memory_format)


def tabled(values: Sequence[Any]) -> list[Any]:
    """Data as a table of its different values, and the position of each there."""
    table: dict[bytes, int] = {}
    places = [table.setdefault(_encoder.encode(value), len(table)) for value in values]
    return [[msgspec.msgpack.decode(one) for one in table], places]


class Broken(ValueError):
    """Stored data that is not what this version writes."""


# What reading data that no Writer wrote may raise; a NoName is a ValueError, a RecursionError a RuntimeError.
_WRONG = AttributeError, TypeError, LookupError, ValueError, RuntimeError, AssertionError, OverflowError, MemoryError


class Writer:
    """Turns values into data. `symbols` are those of the inputs, with their numbers, which are below `count`; `meshes`
    are those of the call. Symbols that depend on the data of tensors get the numbers from `count` on."""

    def __init__(self, symbols: Mapping[Any, int], count: int, meshes: Meshes) -> None:
        self._symbols, self._count, self._meshes = dict(symbols), count, meshes
        self._from_data: list[Any] = []
        self.storages: list[int] = []  # how many of the fakes have each
        self._fakes: list[Any] = []
        self._numbers: dict[int, tuple[int, Any]] = {}  # id -> number of the fake, and the fake, which keeps the id
        self._storage_numbers: dict[Any, int] = {}
        self.graph: Callable[[fx.GraphModule], Any] | None = None  # packs a nested graph
        self.nodes: Mapping[fx.Node, int] = {}  # of the graph that is being packed

    def pack(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else ["int", str(value)]
        if isinstance(value, fx.Node):
            return ["n", self.nodes[value]]
        if isinstance(value, torch.Size):
            return ["z", *map(self.pack, value)]
        if isinstance(value, (tuple, list)):
            if _is_named_tuple(kind) and kind.__module__.startswith("torch."):
                return ["N", names.class_name(kind), *map(self.pack, value)]
            if kind not in (tuple, list) and not kind.__module__.startswith("torch.fx"):
                raise bypasses.VALUE(f"{bypasses.kind_of(value)} cannot be stored")
            return ["t" if isinstance(value, tuple) else "l", *map(self.pack, value)]
        if isinstance(value, (dict, MappingProxyType)):
            return ["d", *(self.pack(one) for pair in value.items() for one in pair)]
        if isinstance(value, (set, frozenset)):
            packed = sorted((self.pack(one) for one in value), key=repr)
            return ["f" if isinstance(value, frozenset) else "s", *packed]
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if is_symbolic(value):
            return self._number(value)
        return self._other(value, kind)

    def _other(self, value: Any, kind: type) -> Any:
        if isinstance(value, _NAMED_BY_TORCH):
            return ["torch", str(value).removeprefix("torch.")]
        if isinstance(value, torch.device):
            return ["device", str(value)]
        if isinstance(value, slice):
            return ["slice", *map(self.pack, (value.start, value.stop, value.step))]
        if isinstance(value, range):
            return ["range", value.start, value.stop, value.step]
        if isinstance(value, complex):
            return ["complex", value.real, value.imag]
        if value is Ellipsis:
            return ["..."]
        if isinstance(value, Enum):
            return ["E", names.class_name(kind), value.name]
        if is_dataclass(value) and not isinstance(value, type) and kind.__module__.startswith("aotviz."):
            return [
                "D",
                names.class_name(kind),
                *(self.pack(getattr(value, f.name)) for f in fields(value)),
            ]
        if isinstance(value, pytree.TreeSpec):
            return self._spec(value)
        if isinstance(value, fx.GraphModule) and self.graph is not None:
            return ["G", self.graph(value)]
        real = script_objects.real(value)
        if distributed.is_shared(real):
            return ["M", real is not value, *self._meshes.packed(real)]
        if isinstance(value, stored_values.Symbol):
            return ["S", self.expression(value)]
        key = stored_values.key_of_a_path(value)
        if key is not None:
            return ["K", *map(self.pack, key)]
        placement = distributed.taken_apart(value)
        if placement is not None:
            return ["P", *map(self.pack, placement)]
        try:
            named = stored_values.operator_name(value)
        except stored_values.NoName as error:
            raise bypasses.OPERATOR(str(error)) from error
        return named or ["g", *_name_of(value)]

    def _spec(self, spec: Any) -> Any:
        if spec.is_leaf():
            return ["leaf"]
        return ["spec", self.pack(spec.type), self.pack(spec.context), *map(self._spec, spec.children())]

    def _number(self, value: Any) -> Any:
        kind = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}[type(value)]
        return ["Y", kind, self.expression(expression(value))]

    def expression(self, found: Any) -> Any:
        """An expression of sympy, such as a condition on sizes."""
        for symbol in sorted(found.free_symbols - self._symbols.keys(), key=lambda one: (len(one.name), one.name)):
            if free_unbacked_symbols(symbol):
                self._symbols[symbol] = self._count + len(self._from_data)
                self._from_data.append(symbol)
        try:
            return stored_values.packed_expression(found, self._symbols)
        except stored_values.NoName as error:
            raise bypasses.VALUE(str(error)) from error

    def from_data(self, shape_env: Any) -> tuple[list[Any], list[Any]]:
        """What is known of the symbols that depend on data, and the conditions on them. The last to be asked for."""
        facts: list[Any] = []
        checks: list[Any] = []
        while len(facts) < len(self._from_data):  # facts and conditions may have more symbols
            symbol = self._from_data[len(facts)]
            kind, lower, upper, is_size, equal = stored_values.facts_of_data(symbol, shape_env)
            known = None if equal is None else self.expression(equal)
            facts.append([kind, self.expression(lower), self.expression(upper), is_size, known])
            for one in shape_env.deferred_runtime_asserts.get(symbol, ()):  # the program checks these when it runs
                checks.append([self.expression(one.expr), str(one.msg)])
        return facts, checks

    def _tensor(self, value: Any) -> Any:
        known = self._numbers.get(id(value))
        if known is not None:
            return ["F", known[0]]
        if is_subclass(value):
            attributes, context = anatomy(value)
            parts = (one for name in attributes for one in (name, self.pack(getattr(value, name))))
            shape = self.pack(tuple(value.size())), self.pack(tuple(value.stride()))
            return ["W", *_name_of(type(value)), self.pack(context), *shape, *parts]
        if not isinstance(value, FakeTensor):
            return self._constant(value)
        number = len(self._fakes)
        self._fakes.append(None)
        self._numbers[id(value)] = number, value
        if value.layout is not torch.strided:
            raise bypasses.VALUE(f"a {value.layout} tensor inside of the program cannot be stored")
        key = functional.storage(value)
        storage = self._storage_numbers.get(key)
        if storage is None:
            storage = self._storage_numbers[key] = len(self.storages)
            self.storages.append(0)
        self.storages[storage] += 1
        where = (tuple(value.size()), tuple(value.stride()), value.storage_offset())
        dtype, device = str(value.dtype).removeprefix("torch."), str(value.device)
        state = _REQUIRES_GRAD * value.requires_grad + _NO_LEAF * (not value.is_leaf)
        state += _CONJUGATE * value.is_conj() + _NEGATIVE * value.is_neg()
        self._fakes[number] = (storage - number, [dtype, device, *map(self.pack, where), state])
        return ["F", number]

    @property
    def fakes(self) -> list[Any]:
        """All fakes: the number of the storage of each, minus that of the fake, and their layouts."""
        return [[storage for storage, _ in self._fakes], *tabled([where for _, where in self._fakes])]

    def _constant(self, value: torch.Tensor) -> Any:
        if value.layout is not torch.strided or value.requires_grad or value.is_quantized:
            kind = "one that requires grad" if value.requires_grad else str(value.layout)
            raise bypasses.CONSTANT(f"a constant of the program cannot be stored: {kind}")
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        content = raw.numpy().tobytes() if raw.numel() else b""
        dtype = str(value.dtype).removeprefix("torch.")
        return ["c", dtype, str(value.device), list(value.size()), list(value.stride()), content]


def _name_of(value: Any) -> tuple[str, str]:
    try:
        return names.name_of(value)
    except names.NoName as error:
        raise bypasses.unstorable(value) from error


def _counted(place: Any) -> int:
    """Raises Broken: it is negative, and would count from the end."""
    if type(place) is not int or place < 0:
        raise Broken(f"{place!r} is no place in a list")
    return place


class Reader:
    """Makes values from data. `symbols` and `meshes` are as in Writer, `ragged` is from `stored_values.ragged_in`. Fake
    tensors belong to `fake_mode`.

    Raises:
        Broken: the data is not what a Writer writes, or names something that this process does not have.
    """

    def __init__(
        self,
        fakes: Sequence[Any],
        storages: Sequence[int],
        symbols: Sequence[Any],
        fake_mode: Any,  # a FakeTensorMode; None if there are no fakes
        meshes: Meshes,
        ragged: Mapping[Any, torch.SymInt] = MappingProxyType({}),
    ) -> None:
        self._ragged, self._meshes = ragged, meshes
        self._packed, self._counts, self._symbols, self.fake_mode = fakes, storages, [*symbols], fake_mode
        self._made: dict[int, Any] = {}
        self._storages: dict[int, Any] = {}
        self.graph: Callable[[Any], fx.GraphModule] | None = None
        self.nodes: Sequence[fx.Node] = ()
        self.inputs: Sequence[PlainInput] = ()  # of this process's call, whose names stand for the stored ones
        self._named: dict[tuple[str, ...], Any] = {}

    def read(self, data: Any) -> Any:
        if type(data) is not list:
            return data
        tag = data[0]
        if tag == "n":
            return self.nodes[_counted(data[1])]
        if tag == "t":
            return tuple([self.read(one) for one in data[1:]])
        if tag == "l":
            return [self.read(one) for one in data[1:]]
        read = _READERS.get(tag) if isinstance(tag, str) else None
        if read is None:
            raise Broken(f"unknown kind of value {tag!r}")
        try:
            return read(self, *data[1:])
        except _WRONG as error:
            raise Broken(f"{tag}: {error}") from error

    def _class(self, name: str, fits: Callable[[Any], bool]) -> Any:
        known = self._named.get((name,))
        if known is None:
            known = self._named[name,] = names.class_named(name, fits)
        return known

    def _ours(self, name: str, *held: Any) -> Any:
        kind = self._class(name, is_dataclass)
        if self.inputs and issubclass(kind, PlainInput):
            return self.inputs[held[0]]
        return kind(**declared.named(kind, [self.read(one) for one in held]))

    def _named_tuple(self, name: str, *items: Any) -> Any:
        return self._class(name, _is_named_tuple)(*[self.read(one) for one in items])

    def _mesh(self, is_stand_in: bool, sign: str, *path: str) -> Any:
        found = self._meshes.found(sign, *path)
        return script_objects.stand_in(found, self.fake_mode, "mesh") if is_stand_in else found

    def _enum(self, name: str, member: str) -> Any:
        return self._class(name, _is_enum)[member]

    def _global(self, module: str, path: str) -> Any:
        known = self._named.get((module, path))
        if known is None:
            known = self._named[module, path] = names.named(module, path)
        return known

    def _mapping(self, *items: Any) -> dict[Any, Any]:
        values = [self.read(one) for one in items]
        return dict(zip(values[::2], values[1::2], strict=True))

    def _module(self, packed: Any) -> Any:
        if self.graph is None:
            raise Broken("a graph where none can be")
        return self.graph(packed)

    def _spec(self, kind: Any, context: Any, *children: Any) -> Any:
        return pytree.TreeSpec(self.read(kind), self.read(context), [self.read(one) for one in children])

    def _subclass(self, module: str, path: str, context: Any, size: Any, stride: Any, *parts: Any) -> Any:
        kind = self._global(module, path)
        inner = {name: self.read(part) for name, part in zip(parts[::2], parts[1::2], strict=True)}
        with without_modes(), self.fake_mode:
            return kind.__tensor_unflatten__(inner, self.read(context), self.read(size), self.read(stride))

    def _number(self, kind: str, packed: Any) -> Any:
        number = stored_values.expression_of(packed, self._symbols)
        return stored_values.symbolic(kind, number, self.fake_mode.shape_env, self._ragged)

    def expression(self, packed: Any) -> Any:
        return stored_values.expression_of(packed, self._symbols)

    def learn_of_data(self, facts: Sequence[Any], checks: Sequence[Any]) -> None:
        """Make the symbols that depend on data, before anything that has them is read."""
        env = self.fake_mode.shape_env
        made = stored_values.new_from_data((kind for kind, *_ in facts), env) if facts else []
        self._symbols += made
        for symbol, (_, lower, upper, is_size, equal) in zip(made, facts, strict=True):
            known = None if equal is None else self.expression(equal)
            stored_values.tell_of_data(symbol, env, self.expression(lower), self.expression(upper), is_size, known)
        for condition, message in checks:
            env.guard_or_defer_runtime_assert(self.expression(condition), message)

    def check_fakes(self) -> None:
        """Make one fake of each layout, so that none fails when it is read later. Call it once all symbols are known.

        Raises:
            Broken: the table of fakes is not what a Writer writes.
        """
        storages, layouts, places = self._packed
        first = {place: number for number, place in reversed(list(enumerate(places)))}
        known = range(len(self._counts))
        if len(storages) != len(places) or any(where + number not in known for number, where in enumerate(storages)):
            raise Broken("a fake tensor has no storage")
        env = self.fake_mode.shape_env
        with contextlib.nullcontext() if env is None else env.suppress_guards():
            for place in range(len(layouts)):
                self.read(["F", first[place]])

    def check_fake(self, number: int) -> None:
        """Raises Broken: there is no such fake."""
        if number not in range(len(self._packed[2])):
            raise Broken(f"there is no fake tensor {number}")

    def fake(self, number: int) -> Any:
        self.check_fake(number)
        made = self._made.get(number)
        if made is None:
            storages, layouts, places = self._packed
            made = self._made[number] = self._new_fake(storages[number] + number, *layouts[places[number]])
        return made

    def _new_fake(self, storage: int, dtype: str, device: str, size: Any, stride: Any, offset: Any, state: int) -> Any:
        size, stride, offset, kind = self.read(size), self.read(stride), self.read(offset), _torch(dtype)
        with without_modes():
            if self._counts[storage] == 1 and type(offset) is int and offset == 0:
                meta = torch.empty_strided(size, stride, dtype=kind, device="meta")
            else:
                memory = self._storages.get(storage)
                if memory is None:
                    memory = self._storages[storage] = torch.empty(
                        1, dtype=torch.uint8, device="meta"
                    ).untyped_storage()
                meta = torch.empty(0, dtype=kind, device="meta").set_(memory, offset, size, stride)
            made: torch.Tensor = fake(self.fake_mode, meta, device)
        if not state:
            return made
        with without_modes(), self.fake_mode, torch.set_grad_enabled(bool(state & _NO_LEAF)):
            made = tensors.conjugated(made) if state & _CONJUGATE else made
            made = tensors.negated(made) if state & _NEGATIVE else made
            made = made.requires_grad_() if state & _REQUIRES_GRAD else made
            return made.view_as(made) if state & _NO_LEAF else made


def _is_enum(kind: type) -> bool:
    return issubclass(kind, Enum)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _torch(name: str) -> Any:
    found = vars(torch).get(name)
    if not isinstance(found, _NAMED_BY_TORCH):
        raise Broken(f"torch has no {name}")
    return found


def _constant(self: Reader, dtype: str, device: str, size: Any, stride: Any, content: bytes) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    dense = flat.view(_torch(dtype)).reshape(size)
    return torch.empty_strided(size, stride, dtype=dense.dtype, device=device).copy_(dense)


_READERS: dict[str, Callable[..., Any]] = {
    "int": lambda self, text: int(text),
    "z": lambda self, *items: torch.Size([self.read(one) for one in items]),
    "d": Reader._mapping,
    "f": lambda self, *items: frozenset(self.read(one) for one in items),
    "s": lambda self, *items: {self.read(one) for one in items},
    "torch": lambda self, name: _torch(name),
    "device": lambda self, name: torch.device(name),
    "slice": lambda self, *parts: slice(*(self.read(one) for one in parts)),
    "range": lambda self, *parts: range(*parts),
    "complex": lambda self, real, imaginary: complex(real, imaginary),
    "...": lambda self: Ellipsis,
    "E": Reader._enum,
    "D": Reader._ours,
    "G": Reader._module,
    "op": lambda self, *name: stored_values.operator_named("op", *name),
    "packet": lambda self, *name: stored_values.operator_named("packet", *name),
    "hop": lambda self, *name: stored_values.operator_named("hop", *name),
    "g": Reader._global,
    "leaf": lambda self: pytree.tree_structure(0),
    "spec": Reader._spec,
    "Y": Reader._number,
    "S": Reader.expression,
    "K": lambda self, name, *held: stored_values.key_named(name, *map(self.read, held)),
    "F": Reader.fake,
    "W": Reader._subclass,
    "N": Reader._named_tuple,
    "M": Reader._mesh,
    "P": lambda self, *placement: distributed.put_together(*map(self.read, placement)),
    "c": _constant,
}
