"""Notes of the call for which Dynamo compiles something, from which the call can be repeated (`Recording.try_cure`).

The shapes, strides and dtypes of tensors are noted, but not their values; numbers and texts are noted as they are. So
are the numbers, texts and flags of the modules that the function reaches, because a counter or `training` is often why
it is compiled again.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from aotviz.python_state.free_variables import modules
from aotviz.recorder import late_hooks
from aotviz.recording.noted_calls import Made, NotedCall, NotMade
from aotviz.torch_private import dynamo, pytree
from aotviz.torch_private.context import Surroundings
from aotviz.torch_private.tensors import dynamic_marks

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format, enum.Enum)


class _Thread(threading.local):
    latest: NotedCall | None = None  # what one call leads to is compiled in one thread


_thread = _Thread()


def noted() -> NotedCall | None:
    """The call for which this thread compiles; None if it is not known. A note of one call is made once."""
    call = dynamo.running_call()
    if call is None:
        return None
    known = _thread.latest
    if known is not None and known.token is call.token:
        return known
    # An argument may belong to a class of the user's, and a recording must never make a program fail.
    with contextlib.suppress(Exception):
        _thread.latest = made = _note(call, known)
        return made
    return None


def reached(function: Any) -> list[torch.nn.Module]:
    """The modules that a function reaches, in a certain order."""
    return [module for root in modules(function).values() for module in root.modules()]


def as_noted(function: Any, noted: NotedCall) -> None:
    """Give the modules that a function reaches the attributes that they had in the call."""
    for module, attributes in zip(reached(function), noted.attributes, strict=True):
        vars(module).update(attributes)


def _note(call: dynamo.RunningCall, before: NotedCall | None) -> NotedCall:
    leaves, structure = pytree.tree_flatten((call.args, dict(call.kwargs)))
    inputs: dict[int, Any] = {id(leaf): _input(leaf) for leaf in leaves}
    attributes: Sequence[Mapping[str, Any]] = [
        {name: value for name, value in vars(module).items() if isinstance(value, PLAIN)}
        for module in reached(call.function)
    ]
    if before is not None and before.attributes == attributes:
        attributes = before.attributes
    return NotedCall(
        name=str(getattr(call.function, "__name__", type(call.function).__name__)),
        function=_weakly(call.context, call.function),
        token=call.token,
        inputs=[inputs[id(leaf)] for leaf in leaves],
        structure=structure,
        modes=Surroundings(),
        attributes=attributes,
        hooks=late_hooks.numbers(call.function),
    )


def _weakly(context: Any, function: Any) -> Callable[[], tuple[Any, Any] | None]:
    one, other = weakref.ref(context), weakref.ref(function)

    def both() -> tuple[Any, Any] | None:
        found = one(), other()
        return None if None in found else found

    return both


def _input(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        return NotMade(type(value).__name__)
    return Made(
        shape=tuple(value.shape),
        stride=value.stride(),
        dtype=value.dtype,
        device=value.device,
        requires_grad=value.requires_grad,
        is_leaf=value.is_leaf,
        is_parameter=isinstance(value, torch.nn.Parameter),
        marks=dynamic_marks(value),
    )
