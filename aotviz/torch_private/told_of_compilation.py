"""Letting a traced function see that it is being compiled, only in the thread that traces it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch


class _InOneThread:
    """A boolean with one value in the thread that made it, and the previous value in all others."""

    def __init__(self, here: bool, before: Any) -> None:
        self.thread, self.here, self.before = threading.get_ident(), here, before

    def __bool__(self) -> bool:
        return self.here if threading.get_ident() == self.thread else bool(self.before)

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(bool(self))

    def __repr__(self) -> str:
        return repr(bool(self))

    def __or__(self, other: Any) -> Any:
        return bool(self) | other

    def __and__(self, other: Any) -> Any:
        return bool(self) & other

    def __xor__(self, other: Any) -> Any:
        return bool(self) ^ other

    __ror__, __rand__, __rxor__ = __or__, __and__, __xor__


@contextlib.contextmanager
def telling_of_compilation() -> Iterator[None]:
    """`torch.compiler.is_compiling()` is True, and distributions do not validate their arguments, as under Dynamo."""
    distribution = torch.distributions.Distribution
    with _replaced(torch.compiler, "_is_compiling_flag", True), _replaced(distribution, "_validate_args", False):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, here: bool) -> Iterator[None]:
    before = getattr(owner, name)
    placed = _InOneThread(here, before)
    setattr(owner, name, placed)
    try:
        yield
    finally:
        if getattr(owner, name) is placed:  # otherwise another thread has set it in the meantime
            setattr(owner, name, before)
