"""The autograd node whose hooks a replayed backward calls, for `torch._C._current_autograd_node()`.

Autograd's engine says which node it runs. A replay runs none, so the generated code says which visit its next call of
Python is of. The node of a visit is looked up in autograd's graph only if somebody asks for it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aotviz.torch_private.backward_engine import AutogradNode, visits

ROOT = 0  # the visit of no node


class _Thread(threading.local):
    visit = ROOT
    nodes: Callable[[], Sequence[AutogradNode]] | None = None  # in the order in which C++ visits them


_thread = _Thread()


@contextlib.contextmanager
def replaying(outputs: Sequence[Any], inputs: Sequence[Any]) -> Iterator[None]:
    """Around the replay of a backward of `outputs`."""
    _thread.visit, _thread.nodes = ROOT, lambda: visits(outputs, inputs)
    try:
        yield
    finally:
        _thread.visit, _thread.nodes = ROOT, None


def at(visit: int) -> None:
    """The calls that follow are of this visit, by its number in C++'s order."""
    _thread.visit = visit


def current(engines: Callable[[], Any]) -> Any:
    """The node that runs in this thread, or None. `engines` is torch's own function: the engine may run a backward
    inside a hook."""
    found = engines()
    if found is not None or _thread.visit == ROOT or _thread.nodes is None:
        return found
    return _thread.nodes()[_thread.visit].node
