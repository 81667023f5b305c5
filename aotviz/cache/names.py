"""Names in entries: which functions, operators and classes a stored program may refer to.

A name that comes from a file must not lead anywhere that we did not foresee. So it is never followed attribute by
attribute. It is looked up under a root: a module or class of `ROOTS`, which has the functions that read and write
nothing but tensors and numbers; torch's registries of operators; or the classes that Python itself lists as subclasses
of tensors, enumerations and named tuples. What is found must be what a `Writer` would have stored by this very name.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import importlib
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any

import torch

from aotviz.ir.forms import Form
from aotviz.torch_private import stored_values
from aotviz.torch_private.stored_values import NoName

_BUILTINS = frozenset(
    "abs bool complex dict divmod float frozenset int len list max min pow range round set slice str sum tuple".split()
)
_METHODS = (MethodDescriptorType, WrapperDescriptorType)


def _of_operator(name: str, value: Any) -> bool:
    return isinstance(value, BuiltinFunctionType) and name not in {"call", "setitem", "delitem"}


def _is_torchs(name: str, value: Any) -> bool:
    """torch's own functions of tensors and numbers, but those that open a file."""
    if isinstance(value, BuiltinFunctionType):
        return name not in stored_values.OPENS_FILES
    return isinstance(value, FunctionType) and name.lstrip("_").startswith("sym_") and value.__module__ == "torch"


def _python_functions_of(module: str) -> Callable[[str, Any], bool]:
    def fits(name: str, value: Any) -> bool:
        if isinstance(value, BuiltinFunctionType):
            return not name.startswith("_")
        return isinstance(value, FunctionType) and value.__module__ == module and not name.startswith("_")

    return fits


# By name: the module or class, and which of its members a program may call. A member is found by its own name in it.
ROOTS: Mapping[str, tuple[Any, Callable[[str, Any], bool]]] = {
    "_operator": (operator, _of_operator),
    "math": (math, lambda name, value: isinstance(value, BuiltinFunctionType)),
    "builtins": (builtins, lambda name, value: name in _BUILTINS),
    "torch": (torch, _is_torchs),
    "torch._C._nn": (sys.modules["torch._C._nn"], lambda name, value: isinstance(value, BuiltinFunctionType)),
    "torch._C.TensorBase": (stored_values.TENSOR_BASE, lambda name, value: isinstance(value, _METHODS)),
    "torch.functional": (torch.functional, _python_functions_of("torch.functional")),
    "torch.nn.functional": (torch.nn.functional, _python_functions_of("torch.nn.functional")),
    **{
        module: (root, lambda name, value, allowed=allowed: value in allowed)  # type: ignore[misc]
        for module, (root, allowed) in stored_values.STATE_FUNCTIONS.items()
    },
}
_NONE = ("builtins", "NoneType")
# Our data, which an entry consists of.
_OUR_MODULES = tuple(
    f"aotviz.{name}"
    for name in (
        "ir.descriptors ir.forms ir.subclass_meta ir.view_and_mutation stages.dedupe stages.random_state "
        "stages.subclasses stages.synthetic_bases"
    ).split()
)


def name_of(value: Any) -> tuple[str, str]:
    """The root and name by which `named` finds a function or class in another process.

    Raises:
        NoName: a stored program cannot refer to it.
    """
    if value is type(None):
        return _NONE
    for found in _candidates(value):
        try:
            if named(*found) is value:
                return found
        except NoName:
            continue
    where = getattr(value, "__module__", None) or "builtins"
    raise NoName(f"{where}.{getattr(value, '__qualname__', type(value).__qualname__)}")


def _candidates(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, type):
        yield value.__module__, value.__qualname__
        return
    name = getattr(value, "__name__", None)
    if isinstance(name, str):
        yield from ((root, name) for root in ROOTS)


def named(root: str, name: str) -> Any:
    """The function or class that `name_of` gave this name.

    Raises:
        NoName: there is none.
    """
    if (root, name) == _NONE:
        return type(None)
    known = ROOTS.get(root)
    if known is not None:
        where, fits = known
        found = vars(where).get(name)
        if found is not None and not isinstance(found, ModuleType) and fits(name, found):
            return found
    else:
        for base in (torch.Tensor, Enum, tuple):
            kind = _listed(base, root, name)
            if kind is not None and (base is not tuple or hasattr(kind, "_fields")):
                return kind
    raise NoName(f"this process has no {root}.{name} for stored programs")


def class_named(name: str, fits: Callable[[type], bool]) -> Any:
    """One of our dataclasses, or an enumeration or named tuple of torch's or ours, by `class_name`.

    Raises:
        NoName: this version has no such class.
    """
    module, _, path = name.partition(":")
    found = _ours().get((module, path))
    if found is None and module.startswith(("torch.", "aotviz.")):
        found = _listed(Enum, module, path) or _listed(tuple, module, path)
    if found is None or not fits(found):
        raise NoName(f"{name} is no class of this version")
    return found


def class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


@functools.cache
def _ours() -> Mapping[tuple[str, str], type]:
    return {
        (module, name): value
        for module in _OUR_MODULES
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, type) and value.__module__ == module and dataclasses.is_dataclass(value)
        if not issubclass(value, Form)  # an entry is read into one, but has none
    }


def _listed(base: type, module: str, path: str) -> Any:
    """The subclass of `base` with this name. Of several, the one that its module has now; else the last one made."""
    found = [kind for kind in _subclasses(base) if (kind.__module__, kind.__qualname__) == (module, path)]
    if len(found) > 1:
        now = vars(sys.modules[module]).get(path) if module in sys.modules else None
        return now if now in found else found[-1]
    return found[0] if found else None


def _subclasses(base: type) -> list[type]:
    found: dict[type, None] = {}
    waiting = [base]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found[kind] = None
            waiting += type.__subclasses__(kind)
    return list(found)


__all__ = ["ROOTS", "NoName", "class_name", "class_named", "name_of", "named"]
