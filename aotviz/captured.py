"""Modules and tensors that a function refers to without taking them as arguments.

A module's parameters and buffers become inputs of the program, whether the module is what is compiled, or is named
in the function's closure or globals, or is the object that a method is bound to. A bare tensor cannot be lifted
that way, so it is refused by its name.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch


class Captured(torch.nn.Module):
    """Holds the modules that a function refers to, under the names by which it does."""

    def __init__(self, modules: dict[str, torch.nn.Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


def root_of(fn: Any) -> torch.nn.Module | None:
    """The module whose tensors are lifted for `fn`: itself, or a holder of those that it refers to."""
    if isinstance(fn, torch.nn.Module):
        return fn
    modules: dict[str, torch.nn.Module] = {}
    for name, value in references(fn):
        if isinstance(value, torch.nn.Module) and name not in modules:
            modules[name] = value
    return Captured(modules) if modules else None


def refuse_tensors(fn: Any) -> None:
    """Raise for a tensor that `fn` closes over."""
    for name, value in references(fn):
        if isinstance(value, torch.Tensor):
            raise NotImplementedError(
                f"{getattr(fn, '__name__', fn)} uses the tensor {name!r} without taking it as an argument, so aotviz "
                f"can't follow what happens to it. Pass {name!r} as an argument, or make it a buffer of a module; "
                'torch.compile(fn, backend="aotviz") lifts such tensors itself.'
            )


def references(fn: Any) -> Iterator[tuple[str, Any]]:
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
        fn = fn.__func__
    fn = inspect.unwrap(fn) if callable(fn) else fn
    code = getattr(fn, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # a variable that is assigned later
    used = (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    for name in dict.fromkeys(used):  # not `co_names`, which holds the names of attributes too
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def tensors(root: torch.nn.Module) -> Sequence[torch.Tensor]:
    """A module's parameters, then its buffers, each once, as they are now."""
    return [*root.parameters(), *root.buffers()]


def training(root: torch.nn.Module) -> tuple[bool, ...]:
    """Of each module whether it is in training mode: what dropout or batch norm do depends on it."""
    return tuple(module.training for module in root.modules())
