"""The texts of a reading: short ones in memory, long ones where they are, in the log.

Nine tenths of a log are texts that nobody looks at: generated code, cache keys, printed graphs. So of a long text
only the place is kept, and it is read when somebody asks. Equal texts are kept once; long ones are known to be equal
by the MD5 that the log gives for each.
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
    """A text that is in a file."""

    log: int
    at: int
    nbytes: int


Fetch = Callable[[Span], bytes]  # the bytes of a span, as they are in the file


class Texts(Sequence[str]):
    """A table of texts that can be added to.

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
        self._numbers: dict[str, int] | None = None  # made when a text is added
        self._spans: dict[str, int] = {}
        self._lock = threading.Lock()  # graphs may be read, and their texts added, by several threads

    def add(self, text: str | None) -> int:
        """The text's number; NONE for no text."""
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
        """The number of a long text; one of the same digest is the same text."""
        number = self._spans.get(digest) if digest else None
        if number is None:
            number = len(self.items)
            self.items.append(span)
            if digest:
                self._spans[digest] = number
        return number

    def release(self) -> None:
        """Forget what is needed only while texts are added."""
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
