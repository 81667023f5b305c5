"""One line that says what a long compilation is doing: its function, its stage, the kernels generated, and the time.

The line appears when something has compiled for AFTER_S. In a terminal it is on stderr, is written again in place, and
disappears at the end. In a notebook it is one output, which at the end says how long compiling took. Elsewhere, for
example in a log of a job, nothing is written. The environment variable AOTVIZ_PROGRESS changes that: `0` switches the
line off, and `1` also writes to a stderr that is no terminal, as whole lines and seldom. It is read when a compilation
begins. Of the ranks of a job, only the first writes.

`progress.py` says when a compilation changes. Within a stage, which may take minutes, nothing changes, so a thread
writes the line. It runs only while something compiles, and for IDLE_S afterwards.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Protocol, TextIO

from aotviz.recording import progress
from aotviz.recording.dynamo_stage import rests_named
from aotviz.recording.progress import Progress

VARIABLE = "AOTVIZ_PROGRESS"
OFF, ON = ("0", "off", "false", "no"), ("1", "on", "true", "yes")
AFTER_S = 2.0  # of compiling, before the line appears
EVERY_S = 0.25
IDLE_S = 1.0  # compilations that follow each other within this time share a line
PATIENCE_S = 1.0  # with another thread that writes the line
LINES_EVERY_S = 10.0  # where the line cannot be written in place
CLEAR = "\r\x1b[2K"


class Output(Protocol):
    """Where the line is seen."""

    def show(self, text: str) -> None: ...

    def end(self, text: str) -> None:
        """Compiling is over. `show` may follow, if it begins again within IDLE_S."""
        ...


class Terminal:
    """Writes the line in place, and takes it away at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1  # a longer line would wrap, and stay
        self._stream.write(CLEAR + (text if len(text) <= width else text[: max(width - 1, 0)] + "…"))
        self._stream.flush()

    def end(self, text: str) -> None:
        self._stream.write(CLEAR)
        self._stream.flush()


class Lines:
    """Writes whole lines, at most one in LINES_EVERY_S, and one at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = 0.0

    def show(self, text: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINES_EVERY_S
            self.end(text)

    def end(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class Notebook:
    """Updates one output of the running cell. `display` is IPython's."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, text: str) -> None:
        data = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    end = show


def output() -> Output | None:
    """Where the line is seen in this process, as it is now; None if nowhere.

    >>> os.environ["AOTVIZ_PROGRESS"] = "0"
    >>> print(output())
    None
    """
    asked = os.environ.get(VARIABLE, "").strip().lower()
    if asked in OFF or os.environ.get("RANK", "0") != "0":
        return None
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return Notebook(sys.modules["IPython.display"].display)
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return Terminal(sys.stderr)
    return Lines(sys.stderr) if asked in ON else None


class Line:
    """Listens to the compilations of this process, and writes the line. `kernels()` is how many were generated."""

    def __init__(self, kernels: Callable[[], int], output: Callable[[], Output | None] = output) -> None:
        self._kernels, self._output = kernels, output
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._writing = threading.RLock()  # a terminal may be slow: only this lock is held while it is written
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._forget()

    def _forget(self) -> None:
        self._out: Output | None = None
        self._running: dict[int, tuple[int, Progress]] = {}  # number -> its thread, and itself; the latest is last
        self._compiled_s = 0.0  # before `_since`
        self._since = 0.0  # when the first of those that run began, or when the last one stopped
        self._kernels_before = 0
        self._name = ""
        self._shown = False

    def hear(self, compilation: progress.Compilation) -> None:
        """A listener (progress.py)."""
        if os.getpid() != self._process:  # forked: the thread is not here
            return
        now = compilation.progress()
        with self._lock:
            if self._thread is None and not self._begin(now):
                return
            was_running, thread = bool(self._running), threading.get_ident()
            self._running.pop(now.number, None)
            if now.state == "running":
                self._running[now.number] = thread, now
                self._name = rests_named(f"`{now.name}`").replace("`", "")
            elif now.state != "paused":  # torch does not tell when aotviz's backward inside its compilation is over
                self._running = {number: one for number, one in self._running.items() if one[0] != thread}
            if was_running != bool(self._running):
                self._compiled_s += time.monotonic() - self._since if was_running else 0.0
                self._since = time.monotonic()
            is_over = self._shown and not self._running and now.state in ("done", "failed")
        if is_over:
            self._write()  # now, and not by the thread: a notebook's cell may end

    def _begin(self, now: Progress) -> bool:
        if now.state != "running":
            return False
        self._out = self._output()
        if self._out is None:
            return False
        self._kernels_before, self._since = self._kernels(), time.monotonic()
        # An output of a notebook belongs to the cell of the context.
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._run,), name="aotviz progress", daemon=True
        )
        self._thread.start()
        return True

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            with self._lock:
                since = time.monotonic() - self._since
                if not self._running and since > IDLE_S:
                    break
                is_long = bool(self._running) and self._compiled_s + since > AFTER_S
            if is_long:
                self._write()
        with self._lock:
            self._forget()
            self._thread = None

    def _write(self) -> None:
        if not self._writing.acquire(timeout=PATIENCE_S):  # who writes may itself wait for a compilation
            return
        try:
            with self._lock:
                out, text = self._out, self._text()
                is_over = not self._running
                if out is None or (is_over and not self._shown):
                    return
                self._shown = not is_over
            try:
                (out.end if is_over else out.show)(text)
            except Exception:  # an error here must not break a compilation
                with self._lock:
                    self._out = None
        finally:
            self._writing.release()

    def _text(self) -> str:
        kernels = self._kernels() - self._kernels_before
        counted = [f"{kernels} kernel{'s' if kernels > 1 else ''} generated"] if kernels > 0 else []
        if not self._running:
            return " · ".join([f"aotviz: compiled {self._name}", *counted, f"{self._compiled_s:.1f} s"])
        _, now = next(reversed(self._running.values()))
        done = f" ({now.stages} stage{'s' if now.stages > 1 else ''} done)" if now.stages else ""
        seconds = self._compiled_s + time.monotonic() - self._since
        return " · ".join([f"aotviz: compiling {self._name}", f"{now.stage}{done}", *counted, f"{seconds:.0f} s"])

    def stop(self) -> None:
        """End the thread, before the interpreter ends."""
        self._stop.set()
        if (thread := self._thread) is not None:
            thread.join(1.0)


def attach(kernels: Callable[[], int]) -> None:
    """From now on, long compilations of this process have a line. `kernels()` is how many kernels were generated."""
    line = Line(kernels)
    progress.listen(line.hear)
    atexit.register(line.stop)
