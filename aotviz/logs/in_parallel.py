"""Read logs by the tasks of an executor, and merge what they return in a tree of tasks.

Each task reads one log. When MERGED_AT_ONCE neighbours were read, another task merges them, and so on until few are
left, which are merged here. Results come back as packed bytes, and each is dropped once it was merged.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from itertools import islice

from aotviz.logs import parts, tasks
from aotviz.logs.log_files import AnyLog
from aotviz.logs.parts import Part
from aotviz.recording.files import RecordingError

MERGED_AT_ONCE = 8  # parts that one task merges

Report = Callable[[int], None]  # takes how many bytes were read


def read(files: Sequence[AnyLog], executor: Executor, report: Report) -> Part:
    """The logs as one part. Raises RecordingError if the executor loses its workers."""
    try:
        left = len(files)
        results = _reported(files, _results(deque(executor.submit(tasks.read, file) for file in files)), report)
        while left > MERGED_AT_ONCE:
            merges = deque(_merged(executor, group) for group in _groups(results))
            left, results = len(merges), _results(merges)
        return parts.merged(map(parts.unpacked, results))
    except BrokenExecutor as error:
        raise RecordingError(
            f"the executor lost its workers while they read logs ({error}). There may be too little memory: use fewer "
            "workers at a time, or none."
        ) from error


def _merged(executor: Executor, group: list[bytes]) -> Future[bytes]:
    if len(group) == 1:
        future = Future[bytes]()
        future.set_result(group[0])
        return future
    with warnings.catch_warnings():  # Dask's: parts are large, and they are sent to where they are merged on purpose
        warnings.filterwarnings("ignore", "Sending large graph")
        return executor.submit(tasks.merge, group)


def _results(futures: deque[Future[bytes]]) -> Iterator[bytes]:
    """The results in their order. None is kept. What has not begun when this ends early is cancelled."""
    try:
        while futures:
            yield futures.popleft().result()
    finally:
        for future in futures:
            future.cancel()


def _reported(files: Sequence[AnyLog], results: Iterator[bytes], report: Report) -> Iterator[bytes]:
    done = 0
    for file, result in zip(files, results, strict=True):
        done += file.size
        report(done)
        yield result


def _groups(results: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Neighbours that one task merges."""
    results = iter(results)
    while group := list(islice(results, MERGED_AT_ONCE)):
        yield group
