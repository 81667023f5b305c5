"""Remembers what a reading found, so that the next one of the same files takes no time.

An index is the reading's tables, and the places of long texts in the logs; it holds no long text itself. It is in
the user's cache folder (AOTVIZ_CACHE_DIR, else XDG_CACHE_HOME/aotviz, else ~/.cache/aotviz), readable by the user
alone, as logs are. It counts only if each log is known again by its path, size, time and both ends, and if the index
has its checksum; else the logs are read anew. It is written whole or not at all. The oldest go when there are many.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import astuple
from functools import cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from aotviz import __version__
from aotviz.logs.log_files import LogFile
from aotviz.logs.texts import Span, Texts
from aotviz.recording.events import RecordingData

MAGIC = b"\x93AOTVIX\n"
MOST_BYTES = 1 << 30  # of all indexes together
WORTH_BYTES = 1 << 18  # smaller logs are read as quickly as an index


class Index(msgspec.Struct, array_like=True):
    """The content of an index file."""

    about: list[tuple[str, int, int, str]]  # identity of each log
    outline: RecordingData
    texts: list[str | Span]


def folder() -> Path:
    """Where indexes are kept."""
    chosen = os.environ.get("AOTVIZ_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "aotviz"
    return base / "traces"


def load(logs: Sequence[LogFile], place: Path | None = None) -> tuple[RecordingData, list[str | Span]] | None:
    """What was found in these logs the last time; None if that is not known, or not trusted."""
    path = _path(logs, place)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head = len(MAGIC)
    if not content.startswith(MAGIC) or zlib.crc32(memoryview(content)[head + 4 :]) != int.from_bytes(
        content[head : head + 4], "big"
    ):
        return None
    try:
        index = msgspec.msgpack.decode(memoryview(content)[head + 4 :], type=Index)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # of another release
        return None
    if index.about != _about(logs):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return index.outline, index.texts


def save(logs: Sequence[LogFile], outline: RecordingData, texts: Texts, place: Path | None = None) -> None:
    """Remember a reading. Where that is not possible (a full or read-only disk), nothing happens."""
    path = _path(logs, place)
    body = msgspec.msgpack.encode(Index(_about(logs), outline, texts.items))
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)  # its mode is 0600
        try:
            with open(handle, "wb") as file:
                file.write(MAGIC + zlib.crc32(body).to_bytes(4, "big"))
                file.write(body)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
        _prune(path.parent)


def _path(logs: Sequence[LogFile], place: Path | None) -> Path:
    key = "\n".join([_reader(), *(str(log.path.absolute()) for log in logs)])
    return (place or folder()) / f"{blake2b(key.encode('utf-8', 'surrogateescape'), digest_size=16).hexdigest()}.index"


@cache
def _reader() -> str:
    """By which the reader is known: what another release, or another state of the source, found is not used."""
    here = Path(__file__).parent
    digest = blake2b(__version__.encode(), digest_size=16)
    for path in sorted([*here.glob("*.py"), here.parent / "events.py"]):
        with contextlib.suppress(OSError):  # in a zip
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _about(logs: Sequence[LogFile]) -> list[tuple[str, int, int, str]]:
    return [astuple(log.identity) for log in logs]


def _prune(place: Path) -> None:
    """Delete the indexes that were not used for longest, until the rest has room."""
    kept = sorted(((s.st_mtime, s.st_size, path) for path in place.glob("*.index") if (s := path.stat())), reverse=True)
    total = 0
    for number, (_, size, path) in enumerate(kept):
        total += size
        if total > MOST_BYTES and number > 0:
            path.unlink(missing_ok=True)
