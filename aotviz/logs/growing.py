"""A log in memory that grows: only what is new is read each time.

Each record is handled once. What is told of the log so far is a copy of the rows, so that reading on changes nothing
that was told before.
"""

from __future__ import annotations

import time

from aotviz.logs import tasks
from aotviz.logs.assembler import Assembler
from aotviz.logs.contents import Contents
from aotviz.logs.lines import Splitter
from aotviz.logs.outlines import outline
from aotviz.logs.rows import ARTIFACTS, HANDLERS
from aotviz.logs.streams import Log
from aotviz.logs.texts import Span, Texts


class GrowingLog:
    """One thread at a time may use it.

    >>> log = GrowingLog("a")
    >>> for number in range(2):
    ...     head = '{"dynamo_start": {}, "frame_id": 0, "frame_compile_id": %d}' % number
    ...     log.add(f"V0701 12:00:00.000000 7 a.py:1] {head}\\n".encode())
    ...     [one.id for one in log.contents()]
    ['0/0']
    ['0/0', '0/1']
    """

    def __init__(self, name: str) -> None:
        self._content = bytearray()
        self._splitter = Splitter()
        log = Log(name, rank=-1, year=time.gmtime().tm_year)
        self._assembler = Assembler(log, Texts(self._located), HANDLERS, ARTIFACTS)

    def add(self, lines: bytes) -> None:
        """Read on. Each piece ends with a whole record."""
        self._content += lines
        with tasks.collector_off():
            tasks.add(self._assembler, [lines], self._splitter)

    def contents(self) -> Contents:
        """What the log has so far."""
        with tasks.collector_off():
            found, items = outline(self._assembler.finish())
            return Contents(found, Texts(self._located, items))

    def _located(self, span: Span) -> bytes:
        return bytes(self._content[span.at : span.at + span.nbytes])
