"""Gradient hooks that a function registers on several tensors at once, or on modules."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Together:
    """A call of `register_multi_grad_hook`. Each has a `key` of its own."""

    key: Any
    tensors: tuple[torch.Tensor, ...]
    hook: Any
    mode: str


def registered_together() -> Together | None:
    """The running call of `register_multi_grad_hook`, if the registration of a hook comes from there."""
    frame: Any = sys._getframe(1)
    for _ in range(6):
        if frame is not None and frame.f_code is torch.autograd.graph.register_multi_grad_hook.__code__:
            given = frame.f_locals
            return Together(given["lock"], tuple(given["tensors"]), given["fn"], given["mode"])
        frame = None if frame is None else frame.f_back
    return None


@contextlib.contextmanager
def module_hooks_noted(note: Callable[[Any], None]) -> Iterator[None]:
    """Call `note` with each full backward hook, and each pre-hook, of a module that is called inside."""
    kind: Any = torch.utils.hooks.BackwardHook
    start = kind.__init__

    def noted(self: Any, module: Any, hooks: Sequence[Any], pre_hooks: Sequence[Any]) -> None:
        for hook in (*hooks, *pre_hooks):
            note(hook)
        start(self, module, hooks, pre_hooks)

    kind.__init__ = noted
    try:
        yield
    finally:
        kind.__init__ = start
