"""The entry point: `aotviz.read_trace(path)` returns a Recording of torch's own logs."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from aotviz.logs import index as indexes
from aotviz.logs.assembler import Assembler, Log
from aotviz.logs.contents import Contents
from aotviz.logs.lines import Splitter
from aotviz.logs.log_files import LogFile, Where, find
from aotviz.logs.rows import ARTIFACTS, HANDLERS
from aotviz.logs.texts import Texts
from aotviz.reading.recording import Recording

Progress = Callable[[int, int], None]  # (bytes read, total bytes)

SHOWN_FROM_BYTES = 20_000_000  # of all logs together; reading less takes under a second and shows no progress
SHOWN_EVERY_S = 0.2


def read_trace(where: Where, *, index: bool = True, progress: Progress | None = None) -> Recording:
    """Read torch's structured logs, as `TORCH_TRACE=folder python train.py` writes them. This does not need torch.

    `where` is a log file (which may be compressed by gzip), a folder, a pattern such as "traces/*rank*.log", or a list
    of these. Logs of several ranks become one recording. Damaged lines and record types that aotviz does not know are
    counted (`recording.logs`), and everything else is read. Other files are left out (`recording.notes`).

    The result is cached in the user's cache folder, so that reading the same files again is quick; `index=False` turns
    that off. `progress` is called with the bytes read and the total. Without it, a long reading shows its progress on
    stderr if that is a terminal. It can be interrupted at any time.

    Raises RecordingError (a ValueError) if there is no log.

    >>> import aotviz, tempfile, os
    >>> folder = tempfile.mkdtemp()
    >>> with open(os.path.join(folder, "a.log"), "w") as log:
    ...     _ = log.write('V0701 12:00:00.000000 7 a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}')
    >>> recording = aotviz.read_trace(folder)
    >>> recording.compilations
    [<aotviz Compilation 0/0>]
    """
    files, notes = find(where)
    texts = Texts(lambda span: files[span.log].fetch(span.at, span.nbytes))
    total = sum(file.size for file in files)
    worth = index and total >= indexes.WORTH_BYTES
    with _collector_off():
        known = indexes.load(files) if worth else None
        if known is not None:
            outline, texts.items = known
            return Recording(Contents(outline, texts))
        assembler = Assembler(texts, HANDLERS, ARTIFACTS)
        assembler.data.notes.extend(notes)
        with _shown(total, progress) as report:
            _read(files, assembler, report)
        outline = assembler.finish()
        if worth:
            indexes.save(files, outline, texts)
    return Recording(Contents(outline, texts))


def read_bytes(pieces: Iterable[bytes], name: str) -> Contents:
    """Read a log from memory, e.g. that of a live watch. Its texts stay in memory."""
    content = b"".join(pieces)
    texts = Texts(lambda span: content[span.at : span.at + span.nbytes])
    assembler = Assembler(texts, HANDLERS, ARTIFACTS)
    with _collector_off():
        _add(assembler, assembler.log(name, rank=-1, year=time.gmtime().tm_year), [content])
        return Contents(assembler.finish(), texts)


def _read(files: list[LogFile], assembler: Assembler, report: Progress) -> None:
    total, before = sum(file.size for file in files), 0
    for file in files:
        log = assembler.log(str(file.path), file.rank, time.gmtime(file.mtime_ns / 1e9).tm_year)
        _add(assembler, log, _pieces(file, report, before, total))
        if file.cut:
            log.note(log.lines, f"the rest of the file cannot be decompressed ({file.cut})", "")
        before += file.size


def _pieces(file: LogFile, report: Progress, before: int, total: int) -> Iterator[bytes]:
    for piece, done in file.pieces():
        yield piece
        report(before + done, total)


def _add(assembler: Assembler, log: Log, pieces: Iterable[bytes]) -> None:
    """Add all records of a log."""
    splitter = Splitter()
    for piece in pieces:
        for item in splitter.feed(piece):
            assembler.add(log, item)
        log.nbytes += len(piece)
    for item in splitter.finish():
        assembler.add(log, item)
    log.lines = splitter.lines


@contextmanager
def _collector_off() -> Iterator[None]:
    """Turn garbage collection off: the new objects all stay alive, and scanning them repeatedly doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


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
