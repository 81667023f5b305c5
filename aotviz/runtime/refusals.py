"""What the generated wrapper raises when a call is not of the kind that it was compiled for.

A program may hold only for calls whose arguments alias each other as they did when it was traced. The wrapper looks
before it runs anything, so whoever holds the original function can still run that, or compile again.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.torch_private.runtime import is_captured, listens


class CallDiffers(RuntimeError):
    """This call needs another program. Nothing of it has been run."""


class InsideTransform(CallDiffers):
    """This call is inside a torch.func transform or forward-mode differentiation."""


def refuse_transforms(name: str) -> None:
    """Raise InsideTransform."""
    raise InsideTransform(
        f"{name} is compiled and is called inside a transform (vmap, grad, jvp, forward-mode differentiation), which "
        "can't see into a compiled graph. Apply the transform to the original function and compile the result."
    )


def refuse(message: str) -> None:
    """Raise CallDiffers."""
    raise CallDiffers(message)


def refuse_hooks(
    heard: Sequence[weakref.ref[Any]], passed: Sequence[tuple[str, Sequence[int]]], gradients: Sequence[Any]
) -> None:
    """Raise Refused where a hook would not be told of all gradients that it is told of in eager.

    `heard` are tensors, or the hooks of one, which outlive it. `passed` says of each tensor its name, and of which
    results the gradients pass it.
    """
    for reference, (name, slots) in zip(heard, passed, strict=True):
        held = reference()
        listening = held is not None and (listens(held) if isinstance(held, torch.Tensor) else bool(held))
        if listening and any(gradients[slot] is not None for slot in slots):
            raise Refused("hook on a result", name)


def refuse_reshaped(ctx: Any, leaves: Sequence[tuple[int, str]]) -> None:
    """Raise Refused where `torch.autograd.grad` asks for the gradient of a leaf that the call gave another shape.

    `leaves` are (position among the tensors that are passed, name).
    """
    for position, name in leaves:
        if is_captured(ctx.next_functions[position][0]):
            raise Refused("gradient of a moved leaf", name)


def refuse_hooked_alias(names: str) -> None:
    """Raise Refused."""
    raise Refused("hook on an alias", names)


def refuse_deterministic(name: str) -> None:
    """Raise RuntimeError."""
    raise RuntimeError(
        f"{name} was compiled while torch.use_deterministic_algorithms was off, and its backward runs while it is on. "
        "Turn it on before the call, so that the call is compiled for it."
    )
