"""Gradient hooks that the function registers on a tensor that the caller holds too.

A hook on a tensor that never leaves the function is traced: it becomes part of the graph. One on an argument, or on a
result, is to hear of gradients that come from elsewhere, and to do in each backward what it does in Python. So it stays
out of the trace, and the wrapper registers it at each call on the caller's own tensor, where the function does.

Note [Hooks that Python calls]
A hook on a tensor that never leaves may do more than compute with its gradient (`pure_hooks.py`). The graph then
returns that tensor too. The wrapper registers the hook on it, and keeps it from the caller. From there on the hook is
one on a result that others come from: the backward is cut there (`runtime/cuts.py`).
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.tracing import functional, pure_hooks
from aotviz.tracing.ledger import Event, Hooked, Ledger, Moved, Wrote

_CONTAINERS = (list, dict, set)
_PIPELINE = "aotviz.pipeline"  # what is called from there is the trace, and the function that is traced
_DEPTH = 4  # of containers and functions that a hook refers to


class Handle:
    """What registering a hook returns inside the function. It can be removed there, and nowhere else."""

    def __init__(self, ledger: Ledger, undo: Callable[[], Any]) -> None:
        self._ledger, self._undo = ledger, undo

    def remove(self) -> None:
        """Take the hook back. Raises Refused when the function has returned."""
        if not self._ledger.open:
            raise Refused("hook that depends on the call", "a tensor", "its handle is used after the call")
        self._undo()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_error: Any) -> None:
        self.remove()


def handle_of(ledger: Ledger, event: Hooked) -> Handle:
    """The handle of a hook that the wrapper is to register."""

    def undo() -> None:
        if event in ledger.events:
            ledger.events.remove(event)

    return Handle(ledger, undo)


class PutOff(Exception):
    """Hook number `number` became part of the trace, and is on a tensor that leaves the function, or can't be part."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def put_off(
    ledger: Ledger, tensors: tuple[Any, ...], method: str, hook: tuple[Any, ...], name: str, why: str = ""
) -> Any:
    """Note a hook for the wrapper to register. Returns its handle, or what the method returns without one.

    Raises:
        Refused: the hook refers to a tensor of this very call, and would do so in all others.
    """
    if any(_refers_to_trace(value, _DEPTH) for value in hook):
        raise Refused(
            "hook that depends on the call", name, "the hook uses a tensor that the function takes or creates"
        )
    for value in hook:
        if isinstance(value, types.FunctionType) and _keeps_state(value):
            raise Refused("hook that depends on the call", name, "the hook uses a container that the function creates")
    event = Hooked(tensors, method, hook, why)
    ledger.events.append(event)
    return None if method == "retain_grad" else handle_of(ledger, event)


def why_not_traced(hooks: Iterable[Any], of_a_module: bool = False) -> str:
    """Why one of these hooks can't become part of the graph; empty where all can."""
    ours: set[Any] = set()
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") != _PIPELINE:
        ours.add(frame)
        frame = frame.f_back
    whys = (pure_hooks.why_not(one, functional.is_functional, ours.__contains__, of_a_module) for one in hooks)
    return next(filter(None, whys), "")


def hooked_inside(ledger: Ledger, known: Iterable[Any]) -> list[Any]:
    """The tensors that wait for hooks and are not among `known`: see Note [Hooks that Python calls].

    Raises:
        Refused: one is a leaf, which a compiled backward gives no gradient.
    """
    held = {id(one) for one in known}
    hooked = [tensor for event in ledger.events if isinstance(event, Hooked) for tensor in event.tensors]
    found = {id(tensor): tensor for tensor in hooked if id(tensor) not in held}
    for tensor in found.values():
        if functional.grad_fn(tensor) is None:
            raise Refused(
                "hook that depends on the call",
                "a leaf that it creates",
                "a compiled backward does not compute its gradient",
            )
    return list(found.values())


def is_written(ledger: Ledger, tensor: Any, events: list[Event]) -> bool:
    """Whether one of these events gives a tensor another history: from then on a hook on it is another one."""
    root = ledger.root(tensor)
    return any(
        isinstance(event, Moved | Wrote) and event.mode.grad and ledger.root(event.tensor) is root for event in events
    )


def _keeps_state(hook: types.FunctionType) -> bool:
    """Whether a hook closes over a container of the function that is running: at each call, eager has another one."""
    held = [c.cell_contents for c in hook.__closure__ or () if _is_filled(c)]
    found = {n: v for n, v in zip(hook.__code__.co_freevars, held, strict=False) if isinstance(v, _CONTAINERS)}
    frame = inspect.currentframe() if found else None
    while frame is not None and frame.f_globals.get("__name__") != _PIPELINE:
        local = set(frame.f_code.co_cellvars) & set(found)
        if any(frame.f_locals.get(name) is found[name] for name in local):
            return True
        frame = frame.f_back
    return False


def _refers_to_trace(value: Any, depth: int) -> bool:
    """Whether a value is a tensor of the trace, or holds one."""
    if isinstance(value, torch.Tensor):
        return functional.is_functional(value)
    if depth == 0:
        return False
    return any(_refers_to_trace(part, depth - 1) for part in _parts(value))


def _parts(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, list | tuple | set):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (torch.nn.Module, type | types.ModuleType)):
        return []  # a module's tensors are the caller's; those of a trace stand there only while it runs
    return list(getattr(value, "__dict__", {}).values())


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
