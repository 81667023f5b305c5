"""Hooks that were put on a module after a function that calls it was compiled.

Dynamo calls those hooks in a program that a module had when it was captured, and does not check later whether it has
others. So a hook that is registered after the first call is not called, and nothing says so. A watch notes the numbers
of all hooks at each compilation (`calls.py`), and looks again when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from aotviz.python_state.free_variables import modules, plain_function, unwrapped
from aotviz.recording.noted_calls import NotedCall
from aotviz.recording.schema import CallError
from aotviz.recording.strings import clean
from aotviz.torch_private.modules import hooks_of

KINDS = "forward pre-hook", "forward hook", "backward pre-hook", "backward hook"  # in the order of `hooks_of`


def roots(function: Any) -> list[torch.nn.Module]:
    """The modules that a function refers to. Dynamo's own function for a module of torch's class wraps the module."""
    wrapped = unwrapped(function)
    return [wrapped] if isinstance(wrapped, torch.nn.Module) else list(modules(function).values())


def numbers(function: Any) -> frozenset[int]:
    """The numbers of the hooks on the modules that it reaches. No two hooks of a process have the same number."""
    reached = (module for root in roots(function) for module in root.modules())
    return frozenset(number for module in reached for hooks in hooks_of(module) for number in hooks or ())


def found(calls: Iterable[tuple[str, NotedCall]]) -> Iterator[CallError]:
    """The hooks that modules have now and had not when they were compiled for the calls, given with their ids."""
    latest: dict[int, tuple[str, NotedCall, Any]] = {}
    for id_, call in sorted(calls, key=lambda one: one[1].number):
        if (both := call.function()) is not None:
            latest[id(both[0])] = id_, call, both[1]
    for id_, call, function in latest.values():
        for root in roots(function):
            for path, module in root.named_modules():
                for kind, hooks in zip(KINDS, hooks_of(module), strict=True):
                    for number, hook in (hooks or {}).items():
                        if number not in call.hooks:
                            yield _noted(id_, kind, hook, path, type(module).__name__)


def _noted(id_: str, kind: str, hook: Callable[..., Any], path: str, module: str) -> CallError:
    code = getattr(plain_function(hook), "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    name = str(getattr(hook, "__name__", type(hook).__name__))
    return CallError(kind, clean(name), [id_], clean(path), clean(place), "hook", clean(module))
