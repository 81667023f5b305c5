"""Record the result of each operator that runs in eager."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from aotviz.torch_private.dispatch import TorchDispatchMode


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.computed: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with torch.no_grad():
            self.computed.append(_copied(result))
        return result


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


@contextlib.contextmanager
def eager_operators() -> Iterator[list[Any]]:
    """Collect a copy of every operator's result while the block runs."""
    mode = _Operators()
    with mode:
        yield mode.computed
