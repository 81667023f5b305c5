"""The saved tensor hooks that are active in this thread (`torch.autograd.graph.saved_tensors_hooks`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx
from torch._functorch import config

_top = torch._C._autograd._top_saved_tensors_default_hooks
_push = torch._C._autograd._push_saved_tensors_default_hooks
_pop = torch._C._autograd._pop_saved_tensors_default_hooks


def are_on() -> bool:
    return _top(True) is not None


def inlineable() -> tuple[fx.GraphModule, fx.GraphModule] | None:
    """The innermost pair (pack, unpack) if both are graphs, which can be inserted into other graphs."""
    pack, unpack = _top(True) or (None, None)
    return (pack, unpack) if isinstance(pack, fx.GraphModule) and isinstance(unpack, fx.GraphModule) else None


def filtering_mode() -> str:
    """Which saved tensors these graphs apply to: torch's `functorch.config.saved_tensors_hooks_filtering_mode`."""
    return str(config.saved_tensors_hooks_filtering_mode)


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Suspend the hooks while a function is traced: what a trace saves is not the user's."""
    taken: list[Any] = []
    while (pair := _top(True)) is not None:
        taken.append(pair)
        _pop()
    try:
        yield
    finally:
        for pair in reversed(taken):
            _push(*pair)


class Off:
    """Disables the hooks while a program runs that has them in its graphs."""

    def __enter__(self) -> None:
        self._before = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
        torch._C._autograd._saved_tensors_hooks_disable("these hooks are in the compiled graphs already", False)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            torch._C._autograd._saved_tensors_hooks_enable()
        else:
            torch._C._autograd._saved_tensors_hooks_disable(self._before, False)
