"""Processes of this machine as an executor, for reading many logs at once.

Python's own process pools import the caller's main program again, so a script that calls `read_trace` outside of
`if __name__ == "__main__"` would start itself over and over; or they fork, which is unsafe once torch has started
threads. These processes import only aotviz's reader. One that is killed is replaced, and its task is given to another.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any, ParamSpec, TypeVar, cast

from aotviz.recording.files import RecordingError

P = ParamSpec("P")
T = TypeVar("T")

TRIES = 2  # of a task whose process ended
LENGTH_BYTES = 8  # of the number before each message
SERVE = "import sys; sys.path[:] = {path!r}; from aotviz.logs import processes; processes.serve()"


def cpus() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Processes(Executor):
    """An executor with `count` processes, each of which runs one task at a time. Tasks are sent by pickle."""

    def __init__(self, count: int) -> None:
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="aotviz-reading")
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes] | None] = queue.SimpleQueue()  # None: not started
        self._started: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            self._idle.put(None)

    def submit(self, task: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._threads.submit(self._run, task, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for process in self._started:
                process.kill()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for process in self._started:
            with suppress(OSError):  # it was killed
                process.communicate()  # which closes its pipes and so ends it

    def _run(self, task: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        message = pickle.dumps((task, args, kwargs))
        process = self._idle.get()
        try:
            for _ in range(TRIES):
                process = process or self._start()
                try:
                    _send(process.stdin, message)
                    answer = _receive(process.stdout)
                except (EOFError, OSError):  # it was killed
                    process.kill()
                    process = None
                    continue
                error, result = pickle.loads(answer)
                if error is not None:
                    raise error
                return cast(T, result)
        finally:
            self._idle.put(process)
        raise RecordingError(
            f"a process that read logs was killed, {TRIES} times. There may be too little memory: read with fewer "
            "processes at a time, read_trace(..., jobs=1), or --jobs 1."
        )

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SERVE.format(path=sys.path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._started.append(process)
        return process


def serve() -> None:
    """Run tasks until there are no more. This is the main function of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, and ends both
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a module prints must not come between the answers
    while True:
        try:
            task, args, kwargs = pickle.loads(_receive(sys.stdin.buffer))
        except EOFError:
            return
        try:
            answer = pickle.dumps((None, task(*args, **kwargs)))
        except Exception as error:
            answer = pickle.dumps((error, None))
        _send(answers, answer)


def _send(pipe: IO[bytes] | None, message: bytes) -> None:
    assert pipe is not None
    pipe.write(len(message).to_bytes(LENGTH_BYTES, "big"))
    pipe.write(message)
    pipe.flush()


def _receive(pipe: IO[bytes] | None) -> bytes:
    """The next message. Raises EOFError if the other process has ended."""
    assert pipe is not None
    length = pipe.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        raise EOFError
    message = pipe.read(int.from_bytes(length, "big"))
    if len(message) < int.from_bytes(length, "big"):
        raise EOFError
    return message
