r"""A log cut into records: no matter how long, how broken, or by how many processes it was written.

A record is one line, `V0701 12:00:00.000000 4711 torch/_dynamo/utils.py:99] {"dynamo_start": {...}, ...}`, and then
its text, if it has one: lines that begin with a tab, whose MD5 the JSON tells. Nothing else in the file begins with
a tab, so a record ends where the next line without one begins, and a broken record costs nothing but itself.

What can't be read becomes a `Bad` with its line number. A record whose text is missing or doesn't match its MD5 is
read as far as it goes and says so in `damage`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

NEXT = re.compile(rb"\n(?=[^\t])")  # a line that is no text begins behind it
PREFIX = re.compile(
    rb"(?:\[[^\]\n]{1,40}\]:)?[A-Z](?P<stamp>\d{4} \d\d:\d\d:\d\d\.\d{1,9})\s+(?P<process>\d{1,18})\s+"
    rb"[^\n]{0,1000}?:\d+\]\s+(?=\{)"
)
ABOUT = frozenset(  # what a record says beside its own content
    {
        "aotviz_reset",
        "attempt",
        "compiled_autograd_id",
        "frame_compile_id",
        "frame_id",
        "has_payload",
        "pathname",
        "rank",
        "severity",
        "stack",
        "subgraph_name",
        "thread",
        "timestamp",
    }
)
MOST_OF_A_BAD_LINE = 200  # bytes of it that are shown

_decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Record:
    """One record. `payload` is its text as it stands in the file (tabs at line starts), None if it has none."""

    line: int
    process: int
    stamp: bytes  # b"0701 12:00:00.000000", in the local time of the writer
    head: dict[str, Any]
    kind: str  # the record's type
    content: Any  # what the JSON holds under that type
    payload: bytes | None
    at: int  # offset of the payload in the file
    digest: str  # MD5 of the text, "" if unknown or not as it should be
    damage: str  # what is wrong with it, "" if nothing is

    @property
    def text(self) -> bytes:
        """The text as it was before it was indented."""
        return plain(self.payload) if self.payload is not None else b""


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that is no record."""

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
    r"""Takes a log piece by piece, and gives the records that are complete.

    >>> splitter = Splitter()
    >>> pieces = [b'V0701 12:00:00.000000 7 a.py:1] {"dynamo_st', b'art": {}, "frame_id": 0}\n', b'what?\n']
    >>> found = [item for piece in pieces for item in splitter.feed(piece)] + list(splitter.finish())
    >>> [type(item).__name__ for item in found], found[0].kind, found[1].line
    (['Record', 'Bad'], 'dynamo_start', 2)
    """

    def __init__(self) -> None:
        self.lines = 0  # that were handed out
        self._kept: list[bytes] = []  # what has come of the record that is not complete
        self._offset = 0  # in the file, of what is kept

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
        """What is left at the end of the log."""
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
    """A JSON object, also one that Python wrote with NaN or Infinity in it."""
    try:
        found = _decode(text)
    except (ValueError, RecursionError):
        found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def _checked(claim: Any, payload: bytes | None, windows: bool) -> tuple[str, str]:
    """(MD5 of the text, what is wrong)."""
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
