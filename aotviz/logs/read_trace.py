"""The entry point: `aotviz.read_trace(path)` returns a Recording of torch's own logs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import replace

from aotviz.logs import in_parallel, remote_files, tasks
from aotviz.logs import index as indexes
from aotviz.logs import latest as runs
from aotviz.logs.contents import Contents
from aotviz.logs.finding import Where, find
from aotviz.logs.log_files import AnyLog, LogFile
from aotviz.logs.outlines import outline
from aotviz.logs.parts import Merger, Part
from aotviz.logs.processes import Processes, cpus
from aotviz.logs.texts import Item, Span, Texts
from aotviz.reading.recording import Recording
from aotviz.recording.files import RecordingError
from aotviz.recording.schema import RecordingData
from aotviz.recording.strings import clean

P = ParamSpec("P")
T = TypeVar("T")
Pieces = Iterator[tuple[bytes, int]]
Progress = Callable[[int, int], None]  # (bytes read, total bytes)

SHOWN_FROM_BYTES = 20_000_000  # of all logs together; reading less takes under a second and shows no progress
SHOWN_EVERY_S = 0.2
PARALLEL_FROM_BYTES = 40_000_000  # of all logs together; starting processes takes longer than reading less


def read_trace(
    where: Where | None = None,
    *,
    latest: bool = False,
    index: bool = True,
    progress: Progress | None = None,
    limit_mb: int | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Recording:
    """Read torch's structured logs, as `TORCH_TRACE=folder python train.py` writes them. This does not need torch.

    `where` is a log file (which may be compressed by gzip), a folder, a pattern such as "traces/*rank*.log", a URL of
    any of these such as "s3://bucket/job/", or a list of them; by default the folder that the environment variable
    TORCH_TRACE names. URLs need the package fsspec; `storage_options` are those of its file system. With `latest`, only
    the logs of the latest run there: the log that was written last, with those that the other ranks wrote at the same
    time.

    Logs of several ranks become one recording. Damaged lines and record types that aotviz does not know are
    counted (`recording.logs`), and everything else is read. Other files are left out (`recording.notes`).

    Several large logs are read by `jobs` processes at once, by default as many as there are processors; 1 reads all of
    them in this process. With `executor`, any `concurrent.futures.Executor`, its tasks find, read and merge the logs:
    `executor=client.get_executor()` of Dask reads them where they are. The result is always the same.

    The result is cached in the user's cache folder, so that reading the same files again is quick; `index=False` turns
    that off. Logs at a URL are not cached. `progress` is called with the bytes read and the total. Without it, a long
    reading shows its progress on stderr if that is a terminal. It can be interrupted at any time.

    A compressed log may unpack to `limit_mb` MiB; by default to 20 times its size, or to 128 MiB if that is more.

    Raises RecordingError (a ValueError) if there is no log, if one cannot be read or unpacks to more than the limit, or
    if workers of the executor are killed.

    >>> import aotviz, tempfile, os
    >>> folder = tempfile.mkdtemp()
    >>> with open(os.path.join(folder, "a.log"), "w") as log:
    ...     _ = log.write('V0701 12:00:00.000000 7 a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}')
    >>> recording = aotviz.read_trace(folder)
    >>> recording.compilations
    [<aotviz Compilation 0/0>]
    """
    if jobs is not None and (jobs < 1 or executor is not None):
        raise ValueError("jobs is a number of processes, at least 1" if jobs < 1 else "pass either jobs or an executor")
    files, notes = find(
        _given(where), limit_mb, lambda url: _run(executor, remote_files.find, url, storage_options, limit_mb)
    )
    if latest:
        all_files, files = files, _latest(files, executor)
        notes = [runs.told(files, all_files)]
    notes = list(map(clean, notes))
    total = sum(file.size for file in files)
    local = [file for file in files if isinstance(file, LogFile)]
    worth = index and len(local) == len(files) and total >= indexes.WORTH_BYTES
    with tasks.collector_off():
        known = indexes.load(local) if worth else None
        if known is None:
            with _shown(total, progress) as report, _workers(files, total, jobs, executor) as workers:
                part = _read(files, workers, report)
            known = outline(part)
            if worth:
                indexes.save(local, *known)
    return Recording(_contents(*known, files, notes))


def _contents(found: RecordingData, items: list[Item], files: Sequence[AnyLog], notes: list[str]) -> Contents:
    def fetch(span: Span) -> bytes:
        file = files[span.log]
        assert isinstance(file, LogFile), "texts of other logs were taken along"
        return file.fetch(span.at, span.nbytes)

    return Contents(replace(found, notes=[*notes, *found.notes]), Texts(fetch, items))


def _given(where: Where | None) -> Where:
    if where is not None:
        return where
    folder = os.environ.get("TORCH_TRACE")
    if not folder:
        raise RecordingError("no path was given, and TORCH_TRACE names no folder. Pass a log or a folder of logs.")
    return folder


def _run(executor: Executor | None, task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The task's result: of an executor if there is one."""
    return task(*args, **kwargs) if executor is None else executor.submit(task, *args, **kwargs).result()


def _latest(files: list[AnyLog], executor: Executor | None) -> list[AnyLog]:
    """The logs of the latest run. Where some are at a URL, only the executor may be able to read them."""
    if all(isinstance(file, LogFile) for file in files):
        executor = None
    chosen = _run(executor, runs.latest, files)
    names = {file.name for file in chosen}
    return [file for file in files if file.name in names]


def _workers(
    files: Sequence[AnyLog], total: int, jobs: int | None, executor: Executor | None
) -> AbstractContextManager[Executor | None]:
    """The executor that reads the logs; None if this process does."""
    if executor is not None:
        return nullcontext(executor)
    if jobs is None:
        jobs = cpus() if total >= PARALLEL_FROM_BYTES else 1
    count = min(jobs, len(files))
    return _processes(count) if count > 1 and sys.executable else nullcontext(None)


@contextmanager
def _processes(count: int) -> Iterator[Executor]:
    processes = Processes(count)
    try:
        yield processes
    except BaseException:
        processes.shutdown(cancel_futures=True)
        raise
    processes.shutdown()


def read_bytes(pieces: Iterable[bytes], name: str) -> Contents:
    """Read a log from memory, e.g. that of a live watch. Its texts stay in memory."""
    content = b"".join(pieces)
    with tasks.collector_off():
        found, items = outline(tasks.part_of_bytes(content, name))
        return Contents(found, Texts(lambda span: tasks.located(content, span), items))


def _reported(pieces: Pieces, report: Progress, before: int, total: int) -> Pieces:
    for piece, done in pieces:
        yield piece, done
        report(before + done, total)


def _read(files: Sequence[AnyLog], workers: Executor | None, report: Progress) -> Part:
    total, before = sum(file.size for file in files), 0
    if workers is not None:
        return in_parallel.read(files, workers, lambda done: report(done, total))
    merger = Merger()
    for file in files:
        pieces = file.kept_pieces() if isinstance(file, LogFile) else file.pieces()
        merger.add(tasks.part_of(file, _reported(pieces, report, before, total)))
        before += file.size
    return merger.whole


@contextmanager
def _shown(total: int, progress: Progress | None) -> Iterator[Progress]:
    """Yield the function to call with the progress: `progress`, one that prints to stderr, or one that does nothing."""
    if progress is not None or total < SHOWN_FROM_BYTES or not sys.stderr.isatty():
        yield progress or (lambda done, total: None)
        return
    last = 0.0

    def show(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= SHOWN_EVERY_S:
            last = time.monotonic()
            print(f"\rreading logs: {100 * done // max(total, 1)} %", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr, flush=True)
