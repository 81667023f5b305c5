"""Gradient hooks that the function registers on tensors that the caller holds too, on several tensors, or on modules.

A hook on a tensor that never leaves the function is traced: it becomes part of the graph. A hook on an argument or a
result must also receive gradients from outside the graph, and run as Python in each backward. So it stays out of the
trace, and the wrapper registers it in each call on the caller's own tensor, at the same place as the function.

Note [Hooks that Python calls]
A hook on a tensor that never leaves may do more than compute with its gradient (`pure_hooks.py`). The graph then
returns that tensor too. The wrapper registers the hook on it, and does not pass it to the caller. The hook is then one
on a result from which others are computed, and the backward is cut there (`runtime/cuts.py`).
"""

from __future__ import annotations

import itertools
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.ir.user_code import variables
from aotviz.python_state.free_variables import captured, reachable
from aotviz.tracing import functional, pure_hooks
from aotviz.tracing.events import Hooked, Log, TensorNumber
from aotviz.tracing.ledger import Ledger

_CONTAINERS = (list, dict, set)


class Handle:
    """The handle that registering a hook returns inside the function. It can be removed only there."""

    __slots__ = ("_ledger", "_undo")  # no attributes, in which a search for tensors of the trace would look

    def __init__(self, ledger: Ledger, undo: Callable[[], Any]) -> None:
        self._ledger, self._undo = ledger, undo

    def remove(self) -> None:
        """Remove the hook. Raises Refused if the function has returned."""
        if not self._ledger.open:
            raise Refused("hook that depends on the call", "a tensor", "its handle is used after the call")
        self._undo()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_error: Any) -> None:
        self.remove()


def defer(
    ledger: Ledger, tensors: tuple[Any, ...], method: str, hook: tuple[Any, ...], name: str, why: str = ""
) -> Any:
    """Record a hook for the wrapper to register. Returns its handle, or None for `retain_grad`.

    Raises:
        Refused: the hook refers to a tensor of this call, which would be wrong in all others.
    """
    used = ""
    found = (one for value in hook for one in reachable(value) if not (one.of_module or one.attribute))
    if any(functional.is_functional(one.value) for one in found):
        used = "a tensor that the function takes or creates"
    elif any(isinstance(value, types.FunctionType) and _keeps_state(value) for value in hook):
        used = "a container that the function creates"
    if used:
        raise Refused("hook that depends on the call", name, f"the hook uses {used}")
    event = Hooked(tuple(map(ledger.numbered, tensors)), method, hook, why)
    ledger.add(event)

    def undo() -> None:
        if event in ledger.events:
            ledger.remove(event)

    return None if method == "retain_grad" else Handle(ledger, undo)


def hooked_inside(ledger: Ledger, known: Iterable[Any]) -> list[Any]:
    """The tensors with hooks that are not among `known`; see Note [Hooks that Python calls]."""
    held = {id(one) for one in known}
    return [tensor for one in dict.fromkeys(ledger.hooked()) if id(tensor := ledger.tensors[one]) not in held]


def is_written(log: Log, tensor: TensorNumber, start: int = 0) -> bool:
    """Whether one of the events from `start` on changes the `grad_fn` of a tensor: a hook registered after that is a
    different one."""
    root = log.root(tensor)
    seen = (event for k, event in log.changes() if k >= start and event.mode.grad)
    return any(log.root(event.tensor) == root for event in seen)


def _keeps_state(hook: types.FunctionType) -> bool:
    """Whether a hook closes over a container that the running function created: eager would have a new one in each
    call."""
    found = {name: value for name, value in captured(hook).items() if isinstance(value, _CONTAINERS)}
    frames = pure_hooks.frames_of_the_trace() if found else ()
    shared = ((frame, name) for frame in frames for name in found if name in frame.f_code.co_cellvars)
    return any(variables(frame).get(name) is found[name] for frame, name in shared)


def registered_together() -> tuple[Any, tuple[torch.Tensor, ...], Any, str] | None:
    """(Key, tensors, hook, mode) of the running call of `register_multi_grad_hook`, if that is what registers a hook
    now. The key identifies the call."""
    for frame, _ in itertools.islice(traceback.walk_stack(sys._getframe(1)), 6):
        if frame.f_code is torch.autograd.graph.register_multi_grad_hook.__code__:
            given = frame.f_locals
            return given["lock"], tuple(given["tensors"]), given["fn"], given["mode"]
    return None
