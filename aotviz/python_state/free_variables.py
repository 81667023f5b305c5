"""What a function refers to without taking it as an argument, under the names by which its code does.

The doors that take a function as it is (`aot_function` and its family) lift no tensor that they find there: a trace
that meets one is refused, and says which one it is. `aotviz.compile` leaves all this to Dynamo.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MappingProxyType
from typing import Any

import torch

from aotviz.python_state.user_objects import PLAIN, contents
from aotviz.torch_private.modules import tensors_of

DEPTH = 6  # steps from the function: its closure, an object there, an attribute of it, an item of that ...


class Modules(torch.nn.Module):
    """Holds the modules that a function refers to, under the function's names for them."""

    def __init__(self, modules: dict[str, torch.nn.Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


@dataclass(frozen=True)
class Reached:
    """Something that a call leads to. `path` is what the user would write for it."""

    path: str
    value: object
    of_module: bool = False  # a parameter or buffer of a module
    attribute: bool = False  # another attribute of a module


def references(fn: object) -> Iterator[tuple[str, Any]]:
    """(name, value) of what a function refers to from outside: bound object or arguments, closure cells, globals."""
    if isinstance(fn, functools.partial):
        yield from ((f"args[{position}]", value) for position, value in enumerate(fn.args))
        yield from fn.keywords.items()
        yield from references(fn.func)
        return
    if isinstance(fn, torch.nn.Module):
        return
    if inspect.ismethod(fn):
        yield "self", fn.__self__
    plain = plain_function(fn)
    if plain is not None:
        yield from captured(plain).items()
        yield from ((name, plain.__globals__[name]) for name in _globals(plain.__code__) if name in plain.__globals__)


def outside(fn: object) -> tuple[tuple[str, Any], ...]:
    """`references` of a function, or of what a module does when it is called."""
    return tuple(references(getattr(fn, "forward", fn)))


def modules(fn: object) -> dict[str, torch.nn.Module]:
    """The modules among them."""
    return {name: value for name, value in references(fn) if isinstance(value, torch.nn.Module)}


def unwrapped(fn: object) -> FunctionType | torch.nn.Module | None:
    """What a method, a partial function or a decorated one calls: a function, or a module that Dynamo's own wraps."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    plain = inspect.unwrap(fn) if callable(fn) else None
    return plain if isinstance(plain, (FunctionType, torch.nn.Module)) else None


def plain_function(fn: object) -> FunctionType | None:
    """`unwrapped`; None if that is not a function of Python's."""
    plain = unwrapped(fn)
    return plain if isinstance(plain, FunctionType) else None


@functools.lru_cache(1024)  # the blocks of a model share their code
def _globals(code: CodeType) -> tuple[str, ...]:
    """The names of global variables that a function reads or assigns; `co_names` has those of attributes too."""
    used = (step.argval for step in steps(code) if step.opname in ("LOAD_GLOBAL", "STORE_GLOBAL"))
    return tuple(dict.fromkeys(map(str, used)))


def steps(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions of a function, and of the lambdas, comprehensions and functions written in it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from steps(constant)


def captured(function: FunctionType) -> dict[str, Any]:
    """The variables of outer functions that a function refers to, except those that are assigned later."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def reachable(fn: object, arguments: Mapping[str, object] = MappingProxyType({})) -> Iterator[Reached]:
    """The tensors, random generators, classes and Python modules that a call leads to, each container once."""
    seen: set[int] = set()
    is_function = inspect.isroutine(fn) or isinstance(fn, functools.partial)
    starts = _of_function(fn) if is_function else (("self", fn), *references(getattr(fn, "forward", fn)))
    for path, value in (*starts, *arguments.items()):
        yield from _walk(Reached(path, value), seen, DEPTH)


def _of_function(fn: object) -> Iterator[tuple[str, object]]:
    """`references`, and the default arguments."""
    yield from references(fn)
    plain = plain_function(fn)
    if plain is not None:
        code, defaults = plain.__code__, plain.__defaults__ or ()
        yield from zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)
        yield from (plain.__kwdefaults__ or {}).items()


def _walk(found: Reached, seen: set[int], depth: int) -> Iterator[Reached]:
    value = found.value
    if isinstance(value, (torch.Tensor, torch.Generator, type)) or inspect.ismodule(value):
        yield found
    elif depth and id(value) not in seen and not isinstance(value, (*PLAIN, bytes)):
        seen.add(id(value))
        for part in _parts(found.path, value):
            yield from _walk(part, seen, depth - 1)


def _parts(path: str, value: object) -> Iterator[Reached]:
    if inspect.isroutine(value) or isinstance(value, functools.partial):
        yield from (Reached(f"{path}.{name}", item) for name, item in _of_function(value))
    elif isinstance(value, torch.nn.Module):
        yield from _of_module(path, value)
    else:
        held = contents(list(value) if isinstance(value, (set, frozenset)) else value)
        yield from (Reached(path + step, item) for step, item in held)
        if callable(value):
            yield from (Reached(f"{path}.__call__.{name}", item) for name, item in _of_function(type(value).__call__))


def _of_module(path: str, root: torch.nn.Module) -> Iterator[Reached]:
    for name, module in root.named_modules():
        prefix = f"{path}.{name}" if name else path
        for holder in tensors_of(module):
            yield from (Reached(f"{prefix}.{key}", tensor, of_module=True) for key, tensor in holder.items())
        if not type(module).__module__.startswith("torch."):
            yield from (Reached(key, item) for key, item in references(module.forward))
        held = ((step, item) for step, item in contents(module) if not step.startswith("._"))
        yield from (Reached(prefix + step, item, attribute=True) for step, item in held)
