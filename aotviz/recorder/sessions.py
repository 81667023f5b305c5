"""Which recording a compilation goes to.

Each compiled function has a recording. A `record()` block also collects everything compiled inside it, and a watch
(live/watching.py) everything compiled in any thread while it is on. A session holds the recording and programs of one
compiled function.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from aotviz import __version__
from aotviz.ir.forms import Executable, Request
from aotviz.ir.user_warnings import users_line
from aotviz.pipeline import Observer, Observers
from aotviz.recorder import call_errors
from aotviz.recorder.recorder import Recorder
from aotviz.recorder.torchs_trace import TorchsTrace
from aotviz.recording import progress_line
from aotviz.recording.dynamo_stage import COMPILE_ID
from aotviz.recording.store import Store
from aotviz.runtime.lowered import Program
from aotviz.torch_private import dynamo, inductor_results, torchs_log
from aotviz.traced import CallsOriginal

if TYPE_CHECKING:
    from aotviz.reading.recording import Recording


class _Thread(threading.local):
    """State of one thread. Every call reads it: a class default is ten times faster than a default for `getattr`."""

    tracing = False
    apart = False

    def __init__(self) -> None:
        self.open: list[Any] = []  # the stores of the `record()` blocks


_blocks = _Thread()
_lock = threading.RLock()
_count = itertools.count()  # of the functions that were compiled in this process
_numbers: dict[Hashable, int] = {}  # of those that Dynamo compiles
_watched: tuple[Store, ...] = ()  # of the watches that are on, for all threads; replaced, never edited


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Trace the original of every compiled function that is called in this thread inside the block."""
    before = _blocks.tracing
    _blocks.tracing = True
    try:
        yield
    finally:
        _blocks.tracing = before


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Only watches record what this thread compiles inside the block."""
    before, _blocks.apart = _blocks.apart, True
    try:
        yield
    finally:
        _blocks.apart = before


class Progress(Observer):
    """An observer that calls `on_stage(name, elapsed_ns)`: with None when a stage begins, then with its time."""

    def __init__(self, on_stage: Callable[[str, int | None], None]) -> None:
        self.on_stage = on_stage

    def before(self, stage: str, argument: Any) -> None:
        self._dynamo(argument)
        self.on_stage(stage, None)

    def replayed(self, request: Request, program: Executable, recorded: bytes | None) -> None:
        self._dynamo(request)
        self.on_stage("cache", None)
        self.on_stage("cache", 0)

    def _dynamo(self, argument: Any) -> None:
        if isinstance(argument, Request) and argument.captured is not None:
            self.on_stage("dynamo", None)  # it has already ended
            self.on_stage("dynamo", argument.captured.elapsed_ns)

    def after(self, stage: str, argument: Any, result: Any, elapsed_ns: int) -> None:
        self.on_stage(stage, elapsed_ns)


class Session:
    """One compiled function's recording and programs.

    `function` identifies the function if Dynamo compiles it, because then each compilation has a session.
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
        self._open = _Thread()

    def observer(self, backward: int | None = None) -> Observer:
        """Writes to the function's own recording, the open `record()` blocks, the watches, and torch's log.

        `backward` is the number of a captured backward that it is about.
        """
        stores = self.stores()
        stack = "" if backward is None else users_line()
        observers: list[Observer] = [Recorder(*stores, function=self.function, stack=stack)] if stores else []
        if self.on_stage is not None:
            observers.append(Progress(self.on_stage))
        if torchs_log.is_on():
            observers.append(TorchsTrace(backward))
        if not observers:
            return Observer()
        return observers[0] if len(observers) == 1 else Observers(observers)

    def keep(self, program: Program) -> None:
        """Keep a program: with its graphs if it is recorded, else only what runs."""
        if _blocks.apart:
            return
        self.programs.append(program if self.stores() else program.executable())

    def stores(self) -> list[Store]:
        """Where what is compiled now, in this thread, is recorded."""
        own = () if _blocks.apart else (self.store, *self._open.open, *_blocks.open)
        return [store for store in (*own, *_watched) if store is not None]

    def raised(self, error: Exception) -> None:
        """Record an error that a call raises, if it is of a kind that a recording keeps."""
        if (found := call_errors.noted(error)) is not None:
            for store in self.stores():
                store.raised(found)

    @contextlib.contextmanager
    def recording_into(self, store: Store) -> Iterator[None]:
        """What this thread compiles inside the block, for this session and its parts, is recorded in the store too."""
        is_open = store in self._open.open  # a block inside itself
        with contextlib.nullcontext() if is_open else _added(store, self._open.open):
            yield

    def part(self, name: str, function: Hashable) -> Session:
        """The session of one of its functions that Dynamo compiles, with the same recording and programs."""
        made = Session(False, name, self.on_stage, None if function is None else (self.function, function))
        made.store, made.programs, made._open = self.store, self.programs, self._open
        return made


class Once:
    """Facts of which each recording is told once."""

    def __init__(self) -> None:
        self._told: weakref.WeakKeyDictionary[Store, set[Hashable]] = weakref.WeakKeyDictionary()

    def is_new(self, fact: Hashable, session: Session) -> bool:
        """Whether a recording of the session, as it is now, has not been told. From now on all of them have."""
        heard = [self._told.setdefault(store, set()) for store in session.stores()]
        found = any(fact not in some for some in heard)
        for some in heard:
            some.add(fact)
        return found


class Inspected:
    """Gives access to the recording and the programs of something compiled."""

    _session: Session

    @property
    def recording(self) -> Recording:
        """What was recorded so far: a Recording, which displays itself in a notebook."""
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
            called = "If it was called, nothing of it was compiled, and `.explain()` says why."
            raise RuntimeError(f"{self._session.name} has not been compiled yet: call it once. {called}")
        return self._session.programs[-1]

    @property
    def source(self) -> str:
        """The generated Python that runs."""
        return self.program.source

    def to_python(self, compile_id: str | None = None) -> str:
        """A program as a Python file of its own, to be read, edited, run, or compared with that of another version.

        Args:
            compile_id: which one, as in its name in the recording: "0/1" of "step [0/1]". The latest if None.

        It has the graphs as functions, `source` as it is, and a function `inputs` that makes example arguments. It
        traces nothing and compiles nothing; it imports torch and aotviz.

        Raises:
            CannotBeWritten: the program has something that has no form in Python, and the message names it.
            KeyError: there is no program with this id.

        >>> import torch, aotviz
        >>> compiled = aotviz.compile(lambda x, w: (x @ w).sin().sum(), backend="eager")
        >>> x, w = torch.ones(2, 3), torch.ones(3, 3, requires_grad=True)
        >>> expected, = torch.autograd.grad(compiled(x, w), w)
        >>> text = compiled.to_python()
        >>> module = {"__name__": "written"}
        >>> exec(text, module)
        >>> result, = module[compiled.program.function.__name__]([x, w])
        >>> torch.equal(torch.autograd.grad(result, w)[0], expected)
        True
        """
        from aotviz.standalone import writing  # which no compilation needs

        if compile_id is None:
            return writing.written(self.program)
        found = ((COMPILE_ID.search(one.name), one) for one in self._session.programs)
        programs = {name[1] if name else one.name: one for name, one in found}
        if compile_id not in programs:
            raise KeyError(f"{self._session.name} has no program {compile_id!r}; there are {', '.join(programs)}")
        return writing.written(programs[compile_id])

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.recording._repr_mimebundle_(**kwargs)


def session_of(compiled: Inspected) -> Session:
    """Where the programs and the recording of something compiled are kept."""
    return compiled._session


class CompiledCallable(Inspected):
    """A compiled function. Call it like the original; look at `.recording`, `.program` and `.source`."""

    def __init__(
        self,
        compiled: Callable[..., Any],
        session: Session,
        original: Any = None,
        remake: Any = None,
        instead: Callable[[Exception], Exception | None] = lambda error: None,
    ) -> None:
        self._compiled = compiled
        self._session = session
        self._remake = remake  # (function, arguments) that make it again
        self._instead = instead  # what a call raises instead of this error; None: the error
        self.__wrapped__ = self._original = original or getattr(compiled, "__wrapped__", compiled)
        self.__name__ = session.name

    @dynamo.traced_as(CallsOriginal.__call__)
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if _blocks.tracing or torch.compiler.is_exporting():  # whatever compiles the caller compiles this too
            return self._original(*args, **kwargs)
        try:
            return self._compiled(*args, **kwargs)
        except Exception as error:
            instead = self._instead(error)
            if instead is None:
                raise
        raise instead

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind like a function, so that it can be a method."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """Copy or pickle the original and the options, which are compiled again."""
        if self._remake is None:
            raise TypeError(f"{self.__name__} cannot be copied or pickled; compile it again instead")
        return self._remake

    def __repr__(self) -> str:
        count = len(self._session.programs)
        times = {0: "not compiled yet", 1: "compiled once", 2: "compiled twice"}.get(count, f"compiled {count} times")
        return f"<aotviz {self.__name__}, {times}>"


def live(store: Store) -> Recording:
    """A recording that always shows the current content of a store."""
    from aotviz.reading.recording import Recording  # a third of all our modules, which no compilation needs

    return Recording(store, producer())


def producer() -> dict[str, str]:
    """The versions of the software that makes a recording, by name."""
    return {"aotviz": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def watch(store: Store) -> None:
    """From now on put everything that is compiled, in any thread, into the store too."""
    global _watched
    with _lock:
        _watched = (*_watched, store)


def unwatch(store: Store) -> None:
    """Undo `watch`."""
    global _watched
    with _lock:
        _watched = tuple(other for other in _watched if other is not store)


@contextlib.contextmanager
def record() -> Iterator[Recording]:
    """Record everything that aotviz compiles inside the block, however it is called.

    Yields a live recording of what was compiled so far.

    >>> import aotviz
    >>> with aotviz.record() as recording:
    ...     pass
    >>> len(recording.compilations)
    0
    """
    store = Store()
    with _added(store, _blocks.open):
        try:
            yield live(store)
        except BaseException as error:
            if (found := call_errors.noted(error, is_of_block=True)) is not None:
                store.raised(found)
            raise


@contextlib.contextmanager
def _added(store: Store, stores: list[Store]) -> Iterator[None]:
    stores.append(store)
    try:
        yield
    finally:
        stores.remove(store)


progress_line.attach(inductor_results.kernels_generated)
