"""The progress of each compilation in this process, for views that show it live.

This module has only weak references to compilations, so it does not keep them alive. Listeners are called on every
change; without listeners a change costs one iteration over an empty tuple.
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
    """One compilation at one moment. "paused" means between two stages, for example while the user steps through it."""

    number: int  # unique in this process
    name: str
    kind: str
    state: State
    stage: str  # the one that runs, or the last that ran
    stages: int  # how many have ended
    elapsed_ns: int  # of the stages that have ended
    started_unix_ns: int
    error: str
    from_cache: bool = False  # it was not compiled: aotviz's cache had it


class Compilation(Protocol):
    def progress(self) -> Progress: ...


Listener = Callable[[Compilation], None]


class _Thread(threading.local):
    deferred: list[Compilation] | None = None  # those that changed inside of `deferring`


_lock, _thread = threading.RLock(), _Thread()
_numbers = itertools.count()
_known: weakref.WeakSet[Compilation] = weakref.WeakSet()
_aside: ContextVar[bool] = ContextVar("aside", default=False)
_listeners: tuple[Listener, ...] = ()  # replaced, never changed in place


def begun(compilation: Compilation) -> int:
    """Register a compilation, except inside `aside`, and return its number."""
    with _lock:
        if not _aside.get():
            _known.add(compilation)
        return next(_numbers)


@contextmanager
def aside() -> Iterator[None]:
    """Hide compilations that begin in this block from listeners, because the user did not ask for them (`what_if`)."""
    token = _aside.set(True)
    try:
        yield
    finally:
        _aside.reset(token)


def moved(compilation: Compilation) -> None:
    """Call the listeners, because the compilation has changed. The caller holds no lock; see `deferring`."""
    if _thread.deferred is not None:
        _thread.deferred.append(compilation)
        return
    for listener in _listeners:
        if compilation in _known:
            listener(compilation)


@contextmanager
def deferring() -> Iterator[None]:
    """Around code that holds a lock: listeners run code of anybody, so they are called when the block has ended."""
    if _thread.deferred is not None:
        yield
        return
    changed = _thread.deferred = list[Compilation]()
    try:
        yield
    finally:
        _thread.deferred = None
        for compilation in dict.fromkeys(changed):
            moved(compilation)


def compilations() -> list[Compilation]:
    """The compilations of this process whose recording is still alive."""
    with _lock:
        return list(_known)


def listen(listener: Listener) -> None:
    """Call `listener` on every change, in the thread that compiles. It must not raise. Adding it twice is harmless."""
    global _listeners
    with _lock:
        _listeners = (*(other for other in _listeners if other != listener), listener)


def unlisten(listener: Listener) -> None:
    """Remove a listener."""
    global _listeners
    with _lock:
        _listeners = tuple(other for other in _listeners if other != listener)
