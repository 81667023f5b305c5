"""How far each compilation of this process is, for whoever shows it while it goes on.

Compilations are known here by weak reference, so this keeps nothing alive; a change is told to those who listen, and
where nobody does, a compilation pays for a look at an empty tuple.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple, Protocol

State = Literal["running", "paused", "done", "failed"]


class Progress(NamedTuple):
    """One compilation at one moment. It is paused between two stages, e.g. while somebody steps through it."""

    number: int  # unique in this process
    name: str
    kind: str
    state: State
    stage: str  # the one that runs, or the last that ran
    stages: int  # that have ended
    elapsed_ns: int  # of those
    started_unix_ns: int
    error: str


class Compilation(Protocol):
    def progress(self) -> Progress: ...


Listener = Callable[[Compilation], None]

_lock = threading.Lock()
_numbers = itertools.count()
_known: weakref.WeakSet[Compilation] = weakref.WeakSet()
_aside: ContextVar[bool] = ContextVar("aside", default=False)
_listeners: tuple[Listener, ...] = ()  # replaced, never edited


def begun(compilation: Compilation) -> int:
    """Make a compilation known, unless it is made aside; gives its number."""
    with _lock:
        if not _aside.get():
            _known.add(compilation)
        return next(_numbers)


@contextmanager
def aside() -> Iterator[None]:
    """What begins here is no compilation of the user's, e.g. the answer to a question: nobody is told of it."""
    token = _aside.set(True)
    try:
        yield
    finally:
        _aside.reset(token)


def moved(compilation: Compilation) -> None:
    """Tell those who listen."""
    for listener in _listeners:
        if compilation in _known:
            listener(compilation)


def compilations() -> list[Compilation]:
    """Those of this process whose recording is still kept somewhere."""
    with _lock:
        return list(_known)


def listen(listener: Listener) -> None:
    """Be told of every change, in the thread that compiles. The listener must not raise. Twice is once."""
    global _listeners
    with _lock:
        _listeners = (*(other for other in _listeners if other != listener), listener)


def unlisten(listener: Listener) -> None:
    """No longer."""
    global _listeners
    with _lock:
        _listeners = tuple(other for other in _listeners if other != listener)
