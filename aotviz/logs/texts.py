"""The texts of a log: short ones are kept in memory, long ones stay in the file.

Nine tenths of a log are texts that are rarely read: generated code, cache keys, printed graphs. So only the location of
a long text is stored, and the text is read when it is needed. Equal texts are stored once; long texts are compared by
the MD5 in the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import overload

import msgspec

from aotviz.logs.lines import plain
from aotviz.recording.events import NONE
from aotviz.recording.strings import clean

LONG_BYTES = 512


class Span(msgspec.Struct, array_like=True, frozen=True):
    """The location of a text in a log file."""

    log: int
    at: int
    nbytes: int


Fetch = Callable[[Span], bytes]  # reads the bytes of a span from the file


class Texts(Sequence[str]):
    """A growing table of texts.

    >>> texts = Texts(lambda span: b"\\tdef f():\\n\\t    pass"[span.at : span.at + span.nbytes])
    >>> span = Span(0, 0, 19)
    >>> texts.add("x"), texts.add_span(span, "5d41"), texts.add("x"), texts.add_span(span, "5d41")
    (0, 1, 0, 1)
    >>> texts[1]
    'def f():\\n    pass'
    """

    def __init__(self, fetch: Fetch, items: Iterable[str | Span] = ()) -> None:
        self.items: list[str | Span] = list(items)
        self._fetch = fetch
        self._numbers: dict[str, int] | None = None  # made when a text is first added
        self._spans: dict[str, int] = {}
        self._lock = threading.Lock()  # graphs may be read, and their texts added, by several threads

    def add(self, text: str | None) -> int:
        """The text's number, which is new if the text is new; NONE if `text` is None."""
        if text is None:
            return NONE
        with self._lock:
            if self._numbers is None:
                self._numbers = {item: number for number, item in enumerate(self.items) if isinstance(item, str)}
            number = self._numbers.get(text)
            if number is None:
                number = self._numbers[text] = len(self.items)
                self.items.append(clean(text))
            return number

    def add_span(self, span: Span, digest: str = "") -> int:
        """The number of a long text. Texts with the same digest get the same number."""
        number = self._spans.get(digest) if digest else None
        if number is None:
            number = len(self.items)
            self.items.append(span)
            if digest:
                self._spans[digest] = number
        return number

    def release(self) -> None:
        """Drop the lookup tables, which are needed only while texts are added."""
        self._numbers = None
        self._spans.clear()

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
        return item if isinstance(item, str) else plain(self._fetch(item)).decode("utf-8", "replace")
