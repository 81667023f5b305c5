r"""Split a log into records. The log may be long or damaged, and several processes may have written it.

A record is one line, `V0701 12:00:00.000000 4711 torch/_dynamo/utils.py:99] {"dynamo_start": {...}, ...}`, and then
its text, if it has one: lines that begin with a tab. The JSON contains the text's MD5. Nothing else in the file begins
with a tab, so a record ends at the next line without a tab, and a damaged record does not affect the others.

A line that cannot be read becomes a `Bad` with its line number. A record whose text is missing or does not match its
MD5 is read anyway, and its `damage` says what is wrong.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

NEXT = re.compile(rb"\n(?=[^\t])")  # the line end before a line that does not belong to a text
PREFIX = re.compile(
    rb"(?:\[[^\]\n]{1,40}\]:)?[A-Z](?P<stamp>\d{4} \d\d:\d\d:\d\d\.\d{1,9})\s+(?P<process>\d{1,18})\s+"
    rb"[^\n]{0,1000}?:\d+\]\s+(?=\{)"
)
ABOUT = frozenset(  # the JSON keys that records of every type may have
    """
    aotviz_reset attempt compiled_autograd_id frame_compile_id frame_id has_payload pathname rank severity stack
    subgraph_name thread timestamp
    """.split()
)
MOST_OF_A_BAD_LINE = 200  # bytes of a bad line that are shown

_decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Record:
    """One record. `payload` is its text as in the file (with tabs at line starts); None if there is no text."""

    line: int
    process: int
    stamp: bytes  # b"0701 12:00:00.000000", in the local time of the writer
    head: dict[str, Any]
    kind: str  # the record's type
    content: Any  # the JSON's value for the key `kind`
    payload: bytes | None
    at: int  # offset of the payload in the file
    digest: str  # MD5 of the text; "" if it is unknown or does not match
    damage: str  # what is wrong with the record; "" if nothing is wrong

    @property
    def text(self) -> str:
        """The text without its indentation."""
        return plain(self.payload or b"").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that is not a record."""

    line: int
    reason: str
    text: str


def plain(payload: bytes) -> bytes:
    r"""A payload without its indentation.

    >>> plain(b"\tdef f():\n\t    pass")
    b'def f():\n    pass'
    """
    return payload.replace(b"\n\t", b"\n").removeprefix(b"\t")


class Splitter:
    r"""Takes a log piece by piece, and yields each record when it is complete.

    >>> splitter = Splitter()
    >>> pieces = [b'V0701 12:00:00.000000 7 a.py:1] {"dynamo_st', b'art": {}, "frame_id": 0}\n', b'what?\n']
    >>> found = [item for piece in pieces for item in splitter.feed(piece)] + list(splitter.finish())
    >>> [type(item).__name__ for item in found], found[0].kind, found[1].line
    (['Record', 'Bad'], 'dynamo_start', 2)
    """

    def __init__(self) -> None:
        self.lines = 0  # how many were processed
        self._kept: list[bytes] = []  # the pieces of the record that is not complete yet
        self._offset = 0  # of `_kept` in the file

    def feed(self, data: bytes) -> Iterator[Record | Bad]:
        """The records that `data` completes."""
        last = self._kept[-1][-1:] if self._kept else b""
        if NEXT.search(last + data) is None:
            if data:
                self._kept.append(data)
            return
        searched = sum(map(len, self._kept)) - len(last)
        buffer = b"".join([*self._kept, data])
        start = 0
        for match in NEXT.finditer(buffer, searched):
            end = match.end()
            yield from self._read(buffer[start : end - 1], start)
            start = end
        self._kept = [buffer[start:]]
        self._offset += start

    def finish(self) -> Iterator[Record | Bad]:
        """The last record, at the end of the log."""
        rest, self._kept = b"".join(self._kept), []
        if rest:
            yield from self._read(rest.removesuffix(b"\n"), 0)
            self._offset += len(rest)

    def _read(self, piece: bytes, start: int) -> Iterator[Record | Bad]:
        number = self.lines + 1
        head, newline, payload = piece.partition(b"\n")
        self.lines += 1 + (payload.count(b"\n") + 1 if newline else 0)
        if not piece.strip():
            return
        at = self._offset + start + len(head) + 1
        yield _record(number, head, payload if newline and payload.startswith(b"\t") else None, at)


def _record(number: int, line: bytes, payload: bytes | None, at: int) -> Record | Bad:
    match = PREFIX.match(line)
    if match is None:
        reason = "text that does not belong to a record" if line.startswith(b"\t") else "not a line of torch's trace"
        return _bad(number, line, payload, reason)
    try:
        head = _json(line[match.end() :])
    except (ValueError, RecursionError) as error:
        return _bad(number, line, payload, f"its JSON cannot be read ({error})")
    kind = next((name for name in head if name not in ABOUT), "stack" if "stack" in head else "")
    if not kind:
        return _bad(number, line, payload, "a record without a type")
    digest, damage = _checked(head.get("has_payload"), payload, line.endswith(b"\r"))
    process = int(match["process"])
    return Record(number, process, match["stamp"], head, kind, head[kind], payload, at, digest, damage)


def _json(text: bytes) -> dict[str, Any]:
    """Parse a JSON object, which may contain NaN or Infinity, as Python's json writes them."""
    try:
        found = _decode(text)
    except (ValueError, RecursionError):
        found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def _checked(claim: Any, payload: bytes | None, windows: bool) -> tuple[str, str]:
    """Compare a text with its claimed MD5. Returns (MD5 of the text, what is wrong); either may be ""."""
    if claim is None:
        return "", ""
    if payload is None:
        return "", "its text is missing"
    text = plain(payload)
    digest = hashlib.md5(text, usedforsecurity=False).hexdigest()
    if digest == claim:
        return digest, ""
    if windows and hashlib.md5(text.replace(b"\r", b""), usedforsecurity=False).hexdigest() == claim:
        return "", ""
    return "", "its text is damaged or incomplete: it does not match its checksum"


def _bad(number: int, line: bytes, payload: bytes | None, reason: str) -> Bad:
    if payload is not None:
        lines = payload.count(b"\n") + 1
        reason += f"; {lines} line{'' if lines == 1 else 's'} of text after it left out"
    return Bad(number, reason, line[:MOST_OF_A_BAD_LINE].decode("utf-8", "replace"))
