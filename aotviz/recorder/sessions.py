"""Which recording a compilation goes to.

Each compiled function has a recording of its own; a `record()` block collects those of everything compiled inside
it as well, and a watch (live/watching.py) those of everything compiled in any thread while it is on. A session is one
compiled function's share of this.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
import threading
from collections.abc import Callable, Hashable, Iterator
from types import MethodType
from typing import Any

import torch

from aotviz import __version__
from aotviz.ir.forms import Executable, Request
from aotviz.pipeline import Observer, Several, Silent
from aotviz.reading.recording import Recording
from aotviz.recorder.recorder import Recorder
from aotviz.recording.store import Store
from aotviz.runtime.lowered import Program


class _Thread(threading.local):
    """What is so in one thread. Every call asks: a default of the class costs a tenth of one given to `getattr`."""

    tracing = False

    def __init__(self) -> None:
        self.open: list[Any] = []  # the stores of the `record()` blocks


_blocks = _Thread()
_lock = threading.Lock()
_count = itertools.count()  # of the functions that were compiled in this process
_numbers: dict[Hashable, int] = {}  # of those that Dynamo compiles
_watched: tuple[Store, ...] = ()  # of the watches that are on, for all threads; replaced, never edited


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """While a program is compiled in this thread, a compiled function that it calls is traced as the original."""
    before = _blocks.tracing
    _blocks.tracing = True
    try:
        yield
    finally:
        _blocks.tracing = before


class Progress:
    """An observer that calls `on_stage(name, elapsed_ns)`: with None when a stage begins, then with its time."""

    def __init__(self, on_stage: Callable[[str, int | None], None]) -> None:
        self.on_stage = on_stage

    def before(self, stage: str, argument: Any) -> None:
        if isinstance(argument, Request) and argument.captured is not None:
            self.on_stage("dynamo", None)  # which is over by now
            self.on_stage("dynamo", argument.captured.elapsed_ns)
        self.on_stage(stage, None)

    def after(self, stage: str, argument: Any, result: Any, elapsed_ns: int) -> None:
        self.on_stage(stage, elapsed_ns)

    def failed(self, stage: str, argument: Any, error: BaseException) -> None:
        """The error itself is what the caller sees."""

    def explained(self, error: BaseException) -> None:
        """As above."""

    def ran_in_eager(self, reason: str, place: str) -> None:
        """A warning tells the caller."""

    def withdraw(self) -> None:
        """The stages begin again."""

    def late(self) -> Progress:
        return self

    def further(self) -> Progress:
        return self


class Session:
    """One compiled function's recording and programs.

    `function` is what makes it this function, where a session is only one of its compilations: Dynamo's.
    """

    def __init__(
        self,
        record: bool,
        name: str,
        on_stage: Callable[[str, int | None], None] | None = None,
        function: Hashable = None,
    ) -> None:
        self.name = name
        self.function = _numbers.setdefault(function, next(_count)) if function is not None else next(_count)
        self.store = Store() if record else None
        self.on_stage = on_stage
        self.programs: list[Executable] = []

    def observer(self) -> Observer:
        """Tells the function's own recording, those of the open `record()` blocks, and those of the watches."""
        stores = self._stores()
        observers: list[Observer] = [Recorder(*stores, function=self.function)] if stores else []
        if self.on_stage is not None:
            observers.append(Progress(self.on_stage))
        if not observers:
            return Silent()
        return observers[0] if len(observers) == 1 else Several(observers)

    def keep(self, program: Program) -> None:
        """Note a program: with its graphs where they are recorded, else only what runs."""
        self.programs.append(program if self._stores() else program.executable())

    def _stores(self) -> list[Store]:
        return [store for store in (self.store, *_blocks.open, *_watched) if store is not None]

    def part(self, name: str, function: Hashable) -> Session:
        """The session of one function that Dynamo compiles of it, with the same recording and programs."""
        made = Session(False, name, self.on_stage, None if function is None else (self.function, function))
        made.store, made.programs = self.store, self.programs
        return made

    def attach(self, compiled: Callable[..., Any]) -> Any:
        """Give a compiled callable the attributes by which a person looks into it."""
        return CompiledCallable(compiled, self)


class Inspected:
    """Something compiled, into which a person looks."""

    _session: Session

    @property
    def recording(self) -> Recording:
        """What was recorded so far: a Recording, which shows itself in a notebook."""
        if self._session.store is None:
            raise RuntimeError(f"{self._session.name} was compiled with record=False, so there is no recording")
        return live(self._session.store)

    def explain(self) -> Any:
        """`Recording.explain` of what was recorded so far."""
        return self.recording.explain()

    @property
    def program(self) -> Executable:
        """The latest program: a `Program`, with its graphs, if it was recorded."""
        if not self._session.programs:
            raise RuntimeError(f"{self._session.name} has not been compiled yet: call it once")
        return self._session.programs[-1]

    @property
    def source(self) -> str:
        """The generated Python that runs."""
        return self.program.source

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.recording._repr_mimebundle_(**kwargs)


def session_of(compiled: Inspected) -> Session:
    """Where the programs and the recording of something compiled are kept."""
    return compiled._session


class CompiledCallable(Inspected):
    """A compiled function. Call it like the original; look at `.recording`, `.program` and `.source`."""

    def __init__(
        self, compiled: Callable[..., Any], session: Session, original: Any = None, remake: Any = None
    ) -> None:
        self._compiled = compiled
        self._session = session
        self._remake = remake  # (function, arguments) that make it again
        self.__wrapped__ = self._original = original or getattr(compiled, "__wrapped__", compiled)
        self.__name__ = session.name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        # What compiles the caller compiles this with it. (`is_compiling()` is True in other threads as well.)
        if torch.compiler.is_dynamo_compiling() or _blocks.tracing or torch.compiler.is_exporting():
            return self._original(*args, **kwargs)
        return self._compiled(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method, where it lies in a class."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """A copy, or what a file holds, is the original and the options: it is compiled anew."""
        if self._remake is None:
            raise TypeError(f"{self.__name__} cannot be copied or pickled; compile it again instead")
        return self._remake

    def __repr__(self) -> str:
        return f"<aotviz {self.__name__}, compiled {len(self._session.programs)} times>"


def live(store: Store) -> Recording:
    """A recording that shows what a store holds at the moment it is looked at."""
    producer = {"aotviz": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return Recording(store, producer)


def watch(store: Store) -> None:
    """Put whatever is compiled from now on into the store too, in any thread."""
    global _watched
    with _lock:
        _watched = (*_watched, store)


def unwatch(store: Store) -> None:
    """No longer."""
    global _watched
    with _lock:
        _watched = tuple(other for other in _watched if other is not store)


@contextlib.contextmanager
def record() -> Iterator[Recording]:
    """Record everything that aotviz compiles inside the block, by whichever door.

    Yields a live recording: it has the tables and views of any `Recording`, of what was compiled so far.

    >>> import aotviz
    >>> with aotviz.record() as recording:
    ...     pass
    >>> len(recording.compilations)
    0
    """
    store = Store()
    _blocks.open.append(store)
    try:
        yield live(store)
    finally:
        _blocks.open.remove(store)
