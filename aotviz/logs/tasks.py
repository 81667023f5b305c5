"""What processes do when logs are read in parallel: read a log, or merge what others have read.

These functions are sent to other processes and machines, so they take and return little: a log is named, not sent, and
a part is packed. The modules that they need import neither torch nor pandas.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from aotviz.logs import parts
from aotviz.logs.assembler import Assembler
from aotviz.logs.lines import Splitter
from aotviz.logs.log_files import AnyLog, LogFile
from aotviz.logs.parts import Part
from aotviz.logs.rows import ARTIFACTS, HANDLERS
from aotviz.logs.streams import Log
from aotviz.logs.texts import Span, Texts


def read(file: AnyLog) -> bytes:
    """Read a log. Raises RecordingError if that is impossible."""
    with collector_off():
        return parts.packed(part_of(file, file.pieces()))


def merge(packed: Sequence[bytes]) -> bytes:
    """Merge parts that follow one another."""
    with collector_off():
        return parts.packed(parts.merged(map(parts.unpacked, packed)))


def part_of(file: AnyLog, pieces: Iterable[tuple[bytes, int]]) -> Part:
    """Read a log from its pieces. Long texts of a file on this machine stay there; others are taken along."""
    fetch = (lambda span: file.fetch(span.at, span.nbytes)) if isinstance(file, LogFile) else None
    log = Log(file.name, file.rank, time.gmtime(file.mtime_ns / 1e9).tm_year)
    assembler = Assembler(log, Texts(fetch), HANDLERS, ARTIFACTS)
    add(assembler, (piece for piece, _ in pieces))
    if file.cut:
        log.note(log.lines, f"the rest of the file cannot be decompressed ({file.cut})", "")
    return assembler.finish()


def part_of_bytes(content: bytes, name: str) -> Part:
    """Read a log from memory. Long texts are located in `content`."""
    texts = Texts(lambda span: located(content, span))
    assembler = Assembler(Log(name, rank=-1, year=time.gmtime().tm_year), texts, HANDLERS, ARTIFACTS)
    add(assembler, [content])
    return assembler.finish()


def located(content: bytes, span: Span) -> bytes:
    return content[span.at : span.at + span.nbytes]


def add(assembler: Assembler, pieces: Iterable[bytes], splitter: Splitter | None = None) -> None:
    """Add all records of a log, or with the splitter of the records before them, those that follow."""
    splitter, log = splitter or Splitter(), assembler.log
    for piece in pieces:
        for item in splitter.feed(piece):
            assembler.add(item)
        log.nbytes += len(piece)
    for item in splitter.finish():
        assembler.add(item)
    log.lines = splitter.lines


@contextmanager
def collector_off() -> Iterator[None]:
    """Turn garbage collection off: the new objects all stay alive, and scanning them repeatedly doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
