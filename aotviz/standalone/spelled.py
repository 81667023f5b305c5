"""Values as Python: how a file refers to what a program is made of.

A literal where there is one; a function, a class or an operator by its name; one of our frozen dataclasses as a call
with its fields; and any value that already has a name in the file by that name. A name is written only if it leads to
the very object from where it is looked up, and each part of it is an identifier (Note [Safe names] in ir/spelling.py).
What has no such form is refused, and the error says where in the program it occurs.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property, partial
from types import MappingProxyType, MethodType, ModuleType
from typing import Any

import torch

from aotviz.ir.forms import Tangent
from aotviz.ir.spelling import exact, is_identifier, keywords, literal, spoken
from aotviz.ir.symbolic_sizes import is_symbolic
from aotviz.runtime import from_file
from aotviz.runtime.codegen import Source
from aotviz.runtime.tangents import Expected
from aotviz.torch_private import pytree, stored_values

MANY_ELEMENTS = 64  # of a constant; one with more is spelled as text
MANY_BYTES = 1 << 20  # of a constant; one with more is refused
_OURS = "aotviz"
_ROOMS = ("torch_private", "ir", "tracing", "runtime", "stages")
_TORCHS = ("aten", "prim", "prims", "higher_order", "quantized", "inductor", "rngprims", "_c10d_functional")
_NAMED_BY_TORCH = (torch.dtype, torch.layout, torch.memory_format)


class CannotBeWritten(RuntimeError):
    """A program cannot be written as a Python file. The message names what has no form in Python."""


class Spelling:
    """The names of one file, and the imports that they need. `taken` are the names that the wrapper uses."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._names = Source()
        self._taken = {self._names.fresh(name) for name in taken}
        self._local: set[str] = set()  # of the functions that are written so far
        self.torch = self.fresh("torch")
        self._imports: dict[str, set[str]] = {}  # module -> names
        self.namespaces: set[str] = set()  # of operators that are not torch's
        self._known: dict[int, tuple[str, Any]] = {}  # by id; the value keeps its id
        self._where = "the program"
        self._varies = False  # whether None stands for a symbolic size: it is read as one that is not concrete

    def fresh(self, hint: str) -> str:
        """A new name for all of the file."""
        name = self._names.fresh(hint)
        while name in self._local:
            name = self._names.fresh(hint)
        self._taken.add(name)
        return name

    def local(self, names: Source, hint: str) -> str:
        """A new name in a function whose other names are `names`. It hides no name of the file."""
        name = names.fresh(hint)
        while name in self._taken:
            name = names.fresh(hint)
        self._local.add(name)
        return name

    def name(self, name: str, value: Any) -> None:
        """From now on a value is referred to by this name."""
        self._known[id(value)] = name, value

    def known(self, value: Any) -> str | None:
        found = self._known.get(id(value))
        return None if found is None else found[0]

    @contextlib.contextmanager
    def within(self, where: str) -> Iterator[None]:
        """An error inside of the block says that it is about this part of the program."""
        before, self._where = self._where, where
        try:
            yield
        finally:
            self._where = before

    def refuse(self, what: str) -> CannotBeWritten:
        return CannotBeWritten(spoken(f"{self._where}: {what}, and cannot be written as Python"))

    def import_as(self, name: str, value: Any) -> bool:
        """Import a function or class under a name; False if no module has it."""
        found = self._home(value)
        if found is None or "." in found[1]:
            return False
        self._import(*found, name)
        self.name(name, value)
        return True

    def of(self, value: Any) -> str:
        """The expression of a value.

        Raises:
            CannotBeWritten: no expression makes this value.
        """
        name = self.known(value)
        if name is not None:
            return name
        for kinds, spell in self._kinds:
            if isinstance(value, kinds):
                return spell(value)
        if is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith(f"{_OURS}."):
            return f"{self.of(type(value))}({', '.join(self._fields(value))})"
        return self._operator(value) or self._method(value) or self._global(value)

    def spread(self, value: Any) -> str:
        """A dataclass with one line for each field."""
        return f"{self.of(type(value))}(" + "".join(f"\n    {field}," for field in self._fields(value)) + "\n)"

    def _fields(self, value: Any) -> list[str]:
        before, self._varies = self._varies, isinstance(value, (Tangent, Expected))
        try:
            return [f"{one.name}={self.of(getattr(value, one.name))}" for one in fields(value) if one.init]
        finally:
            self._varies = before

    @cached_property
    def _kinds(self) -> Sequence[tuple[Any, Callable[[Any], str]]]:
        """In this order: a bool is an int, a named tuple is a tuple."""
        return (
            (torch.Tensor, self._tensor),
            (Enum, lambda value: f"{self.of(type(value))}[{literal(value.name)}]"),
            (_NAMED_BY_TORCH, self._of_torch),
            (torch.device, lambda value: f"{self.torch}.device({literal(str(value))})"),
            ((type(None), str, int), literal),
            (float, self._float),
            (complex, lambda value: f"complex({self._float(value.real)}, {self._float(value.imag)})"),
            (bytes, bytes.__repr__),
            (type(...), lambda value: "..."),
            (torch.Size, lambda value: f"{self.torch}.Size({self._items(value, '[]')})"),
            ((tuple, list, set, frozenset), self._collection),
            ((dict, MappingProxyType), self._mapping),
            (slice, lambda value: f"slice({self._listed((value.start, value.stop, value.step))})"),
            (range, lambda value: f"range({self._listed((value.start, value.stop, value.step))})"),
            (pytree.TreeSpec, self._spec),
        )

    def _float(self, value: float) -> str:
        return literal(value) if math.isfinite(value) else f"float({literal(float.__repr__(value))})"

    def _of_torch(self, value: Any) -> str:
        name = str(value).removeprefix("torch.")
        if not is_identifier(name) or vars(torch).get(name) is not value:
            raise self.refuse(f"{value} is not in torch")
        return f"{self.torch}.{name}"

    def _listed(self, values: Iterable[Any]) -> str:
        return ", ".join(map(self.of, values))

    def _items(self, values: Any, brackets: str) -> str:
        comma = "," if brackets == "()" and len(values) == 1 else ""
        return f"{brackets[0]}{self._listed(values)}{comma}{brackets[1]}"

    def _collection(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, (set, frozenset)):
            return f"{kind.__name__}([{', '.join(sorted(map(self.of, value)))}])"
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return f"{self.of(kind)}({self._listed(value)})"
        if kind not in (tuple, list) and not kind.__module__.startswith("torch.fx"):
            raise self.refuse(f"it has a {kind.__name__}")
        return self._items(value, "[]" if isinstance(value, list) else "()")

    def _mapping(self, value: Any) -> str:
        return "{" + ", ".join(f"{self.of(key)}: {self.of(one)}" for key, one in value.items()) + "}"

    def _spec(self, spec: Any) -> str:
        if spec.is_leaf():
            return f"{self.of(pytree.tree_structure)}(0)"
        children = self._items(spec.children(), "[]")
        return f"{self.of(pytree.TreeSpec)}({self.of(spec.type)}, {self.of(spec.context)}, {children})"

    def _tensor(self, value: torch.Tensor) -> str:
        """A constant, bit for bit."""
        plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
        if not plain or value.is_quantized or value.is_conj() or value.is_neg() or value.is_meta:
            raise self.refuse(
                f"a constant of it is a {type(value).__name__} of layout {value.layout} on {value.device}"
            )
        size, stride = tuple(value.shape), tuple(value.stride())
        dtype, device = self.of(value.dtype), literal(str(value.device))
        if value.numel() * value.element_size() > MANY_BYTES:
            raise self.refuse(f"a constant of it, {dtype}{list(size)}, has more than {MANY_BYTES} bytes")
        kept = f"dtype={dtype}, device={device}"
        if value.numel() <= MANY_ELEMENTS and value.is_contiguous() and _is_what_its_list_says(value):
            return f"{self.torch}.tensor({self.of(value.tolist())}, {kept})"
        text = literal(from_file.text_of(value))
        return f"{self.of(from_file.tensor_of)}({text}, {dtype}, {size}, {stride}, {device})"

    def _operator(self, value: Any) -> str | None:
        """An operator of torch's dispatcher, by its full name."""
        try:
            found = stored_values.operator_name(value)
        except stored_values.NoName as error:
            raise self.refuse(str(error)) from error
        if found is None:
            return None
        _, name, *overload = found
        namespace, _, short = name.rpartition("::")
        parts = [namespace or "higher_order", short, *(one or "default" for one in overload)]
        if not all(map(is_identifier, parts)):
            raise self.refuse(f"the name of the operator {name} is no identifier")
        if parts[0] not in _TORCHS:
            self.namespaces.add(parts[0])
        return ".".join((self.torch, "ops", *parts))

    def _method(self, value: Any) -> str | None:
        """A class method, such as the `apply` of an `autograd.Function`; a function with some arguments given."""
        if isinstance(value, partial):
            given = [*map(self.of, (value.func, *value.args))]
            named = keywords([(name, self.of(one)) for name, one in value.keywords.items()])
            return f"{self.of(partial)}({', '.join((*given, *named))})"
        if isinstance(value, MethodType) and isinstance(value.__self__, type) and is_identifier(value.__name__):
            return f"{self.of(value.__self__)}.{value.__name__}"
        return None

    def _global(self, value: Any) -> str:
        if is_symbolic(value) and self._varies:
            return "None"
        if is_symbolic(value):
            raise self.refuse(f"the size {value} is known only in a call")
        name = getattr(value, "__name__", None)
        if isinstance(name, str) and vars(builtins).get(name) is value:
            return exact(name)
        found = self._home(value)
        if found is None:
            raise self.refuse(f"it uses {_described(value)}, which no file can import")
        module, path = found
        first, _, rest = path.partition(".")
        owner = vars(sys.modules[module])[first]
        imported = self.known(owner)
        if imported is None:
            imported = self.fresh(first)
            self._import(module, first, imported)
            self.name(imported, owner)
        return f"{imported}.{rest}" if rest else imported

    def _import(self, module: str, name: str, alias: str) -> None:
        self._imports.setdefault(module, set()).add(name if alias == name else f"{name} as {alias}")

    @property
    def imports(self) -> list[str]:
        """The lines that import what the file refers to, but `import torch`."""
        return [f"from {module} import {', '.join(sorted(self._imports[module]))}" for module in sorted(self._imports)]

    def _home(self, value: Any) -> tuple[str, str] | None:
        """The module that has a function or class, and its name there. A module of ours, where it has a better name
        than in torch's private ones, before another."""
        module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        own = _found(module, path, value) if isinstance(module, str) and isinstance(path, str) else None
        if own is not None and not any(part.startswith("_") for part in f"{own[0]}.{own[1]}".split(".")):
            return own
        return _among_ours(value) or own


def _found(module: str, path: str, value: Any) -> tuple[str, str] | None:
    """Where an object is, if its module has it under its name."""
    if module == "__main__" or not all(map(is_identifier, (*module.split("."), *path.split(".")))):
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        if found is None:
            return None
        found = vars(found).get(part)
    return (exact(module), exact(path)) if found is value else None


def _among_ours(value: Any) -> tuple[str, str] | None:
    """The name of an object that a module of aotviz has as its own, such as `has_no_memory`."""
    loaded = [(name, held) for name, held in sorted(sys.modules.items()) if isinstance(held, ModuleType)]
    for room in _ROOMS:  # from the lowest, which has what those above it import
        for module, held in loaded:
            if module.startswith(f"{_OURS}.{room}."):
                for name, one in vars(held).items():
                    if one is value and is_identifier(name) and not name.startswith("_"):
                        return module, name
    return None


def _is_what_its_list_says(value: torch.Tensor) -> bool:
    """Whether a list of its elements, written and read again, gives the same bits."""
    if not (value.dtype.is_floating_point or value.dtype.is_complex):
        return value.dtype not in _WITHOUT_LISTS
    if value.dtype.itemsize == 1 or value.dtype.is_complex:
        return False
    again = torch.tensor(value.tolist(), dtype=value.dtype)
    return from_file.text_of(again) == from_file.text_of(value)


_WITHOUT_LISTS = tuple(dtype for name in ("uint16", "uint32", "uint64") if (dtype := getattr(torch, name, None)))


def _described(value: Any) -> str:
    module = getattr(value, "__module__", None) or type(value).__module__
    return f"{module}.{getattr(value, '__qualname__', type(value).__qualname__)}"
