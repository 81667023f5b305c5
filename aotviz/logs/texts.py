"""The texts of logs: short ones are kept in memory, long ones stay in the file.

Nine tenths of a log are texts that are rarely read: generated code, cache keys, printed graphs. So only the location of
a long text is stored, and the text is read when it is needed. Of a log on another machine, the reader may not be able
to open the file, so the long texts are kept in memory, compressed. Equal texts are stored once; long texts are compared
by the MD5 in the log.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import overload

import msgspec

from aotviz.logs.lines import plain
from aotviz.recording.schema import NONE
from aotviz.recording.strings import clean

LONG_BYTES = 512


class Span(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """The location of a text in a log file."""

    log: int  # index into RecordingData.logs
    at: int
    nbytes: int


class Packed(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A long text that is kept in memory."""

    content: bytes  # compressed by zlib


Item = str | Span | Packed
Fetch = Callable[[Span], bytes]  # reads the bytes of a span from the file
QUICK = 1  # zlib's level, because compressing is part of reading


class Texts(Sequence[str]):
    """A growing table of texts. Long ones are located in a file that `fetch` reads, or compressed without it.

    >>> content = b"\\tdef f():\\n\\t    pass"
    >>> for texts in (Texts(lambda span: content[span.at : span.at + span.nbytes]), Texts()):
    ...     texts.add("x"), texts.add_long(content, 0, "5d41"), texts.add("x"), texts.add_long(content, 0, "5d41")
    ...     texts[1]
    (0, 1, 0, 1)
    'def f():\\n    pass'
    (0, 1, 0, 1)
    'def f():\\n    pass'
    """

    def __init__(self, fetch: Fetch | None = None, items: Iterable[Item] = ()) -> None:
        self.items: list[Item] = list(items)
        self.digests: dict[int, str] = {}  # of long texts, by number
        self._fetch = fetch
        self._numbers: dict[str, int] | None = None  # made when a text is first added
        self._by_digest: dict[str, int] = {}
        self._lock = threading.Lock()  # graphs may be read, and their texts added, by several threads

    def add(self, text: str | None) -> int:
        """The text's number, which is new if the text is new; NONE if `text` is None."""
        if text is None:
            return NONE
        number = self._numbers.get(text) if self._numbers is not None else None
        return self._added(text) if number is None else number

    def _added(self, text: str) -> int:
        with self._lock:
            if self._numbers is None:
                self._numbers = {item: number for number, item in enumerate(self.items) if isinstance(item, str)}
            harmless = clean(text)
            number = self._numbers.get(harmless)
            if number is None:
                number = len(self.items)
                self.items.append(harmless)  # before other threads may find its number
                self._numbers[harmless] = number
            self._numbers[text] = number
            return number

    def add_long(self, content: bytes, at: int, digest: str = "") -> int:
        """The number of a long text at an offset of a log. Texts with the same digest get the same number."""
        number = self._by_digest.get(digest) if digest else None
        if number is None:
            number = len(self.items)
            stays = self._fetch is not None
            self.items.append(Span(0, at, len(content)) if stays else Packed(zlib.compress(content, QUICK)))
            if digest:
                self._by_digest[digest], self.digests[number] = number, digest
        return number

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        item = self.items[number]
        if isinstance(item, str):
            return item
        if isinstance(item, Packed):
            content = zlib.decompress(item.content)
        elif self._fetch is not None:
            content = self._fetch(item)
        else:
            raise LookupError("the text is in a file that cannot be read from here")
        return clean(plain(content).decode("utf-8", "replace"))
