"""Cache what was read from logs, so that reading the same files again is quick.

An index contains the tables, and the locations of long texts in the logs, but not the long texts. It is stored in the
user's cache folder (AOTVIZ_CACHE_DIR, else XDG_CACHE_HOME/aotviz, else ~/.cache/aotviz), and only the user can read it.
It is used only if the path, size, time and both ends of each log still match, and if the index's checksum is right;
otherwise the logs are read again. An index is written atomically. If the indexes need too much space, the least
recently used are deleted.
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
from aotviz.logs.texts import Item
from aotviz.recording import user_folder
from aotviz.recording.schema import RecordingData

MAGIC = b"\x93AOTVIX\n"
MOST_BYTES = 1 << 30  # of all indexes together
WORTH_BYTES = 1 << 18  # of logs; reading smaller ones takes no longer than reading an index


class Index(msgspec.Struct, array_like=True):
    """The content of an index file."""

    about: list[tuple[str, int, int, str]]  # the Identity of each log
    outline: RecordingData
    texts: list[Item]


def folder() -> Path:
    """The folder where indexes are stored."""
    return user_folder.folder() / "traces"


def load(logs: Sequence[LogFile], place: Path | None = None) -> tuple[RecordingData, list[Item]] | None:
    """What was read from these logs the last time; None if there is no index, or if it is damaged or outdated."""
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # written by another release
        return None
    if index.about != _about(logs):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return index.outline, index.texts


def save(logs: Sequence[LogFile], outline: RecordingData, texts: list[Item], place: Path | None = None) -> None:
    """Write an index. Does nothing if that fails (the disk is full or read-only)."""
    path = _path(logs, place)
    body = msgspec.msgpack.encode(Index(_about(logs), outline, texts))
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
    """A digest of the reader's version and source. It is part of the path, so other readers' indexes are not used."""
    here = Path(__file__).parent
    digest = blake2b(__version__.encode(), digest_size=16)
    for path in sorted([*here.rglob("*.py"), here.parent / "recording" / "schema.py"]):
        with contextlib.suppress(OSError):  # the package may be in a zip file
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _about(logs: Sequence[LogFile]) -> list[tuple[str, int, int, str]]:
    return [astuple(log.identity) for log in logs]


def _prune(place: Path) -> None:
    """Delete the least recently used indexes until the others fit into MOST_BYTES."""
    kept = sorted(((s.st_mtime, s.st_size, path) for path in place.glob("*.index") if (s := path.stat())), reverse=True)
    total = 0
    for number, (_, size, path) in enumerate(kept):
        total += size
        if total > MOST_BYTES and number > 0:
            path.unlink(missing_ok=True)
