"""Find the log files that a user asks for, open them, and later fetch texts from them.

A folder may also contain other files. A log may be of any length, compressed by gzip, or still being written. A file
stays open as long as its texts may be needed, so that moving or deleting it does no harm.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from aotviz.logs.lines import PREFIX
from aotviz.recording.files import RecordingError

Where = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

SNIFFED_BYTES = 1 << 20  # a log must have at least one good line in its first so many bytes
ENDS_BYTES = 4096  # of each end, which are part of a file's Identity
PIECE_BYTES = 1 << 21
MOST_NAMED = 5  # files that a note names
GZIP = b"\x1f\x8b"
GZIP_FORMAT = 16 + zlib.MAX_WBITS
RANK = re.compile(r"rank_?(\d{1,9})(?!\d)")
LINE = re.compile(rb"^[A-Z\[]", re.M)


@dataclass(frozen=True)
class Identity:
    """Facts about a log file that show that it has not changed since it was read."""

    path: str
    size: int
    mtime_ns: int
    ends: str


class LogFile:
    """An open log file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = open(path, "rb")  # noqa: SIM115  # it is closed when this object dies
        except OSError as error:
            raise RecordingError(f"{path}: cannot be read ({error.strerror or error}).") from error
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        status = os.fstat(self._file.fileno())
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns
        self.packed = self._read(2, 0) == GZIP
        self._unpacked: Any = None  # a temporary file with the content of a compressed one

    @property
    def rank(self) -> int:
        """The rank in the file's name, which is `..._rank_3_....log` in torch's logs, or -1."""
        match = RANK.search(self.path.name)
        return int(match[1]) if match else -1

    @property
    def identity(self) -> Identity:
        ends = blake2b(self._read(ENDS_BYTES, 0), digest_size=16)
        ends.update(self._read(ENDS_BYTES, max(0, self.size - ENDS_BYTES)))
        return Identity(str(self.path.absolute()), self.size, self.mtime_ns, ends.hexdigest())

    def is_log(self) -> bool:
        """Whether any line near the beginning belongs to torch's trace."""
        try:
            head, _ = next(self._unpacked_pieces() if self.packed else self._pieces(), (b"", 0))
        except zlib.error:
            return False
        head = head[:SNIFFED_BYTES]
        return any(PREFIX.match(head, found.start()) for found in LINE.finditer(head))

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """(content, bytes of the file read so far), piece by piece.

        A compressed file that is truncated ends early, and `cut` says why. Raises RecordingError if the disk fails.
        """
        if not self.packed:
            yield from self._pieces()
            return
        spool = tempfile.TemporaryFile(prefix="aotviz-")  # noqa: SIM115  # it stays open as long as this object lives
        weakref.finalize(self, spool.close)
        try:
            for piece, done in self._unpacked_pieces():
                spool.write(piece)
                yield piece, done
        except zlib.error as error:
            self.cut = str(error)
        spool.flush()
        self._unpacked = spool

    cut = ""  # why a compressed file could not be read to its end

    def fetch(self, at: int, nbytes: int) -> bytes:
        """Bytes of the log. Raises RecordingError if the file no longer contains them."""
        if self.packed and self._unpacked is None:
            for _ in self.pieces():
                pass
        found = self._read(nbytes, at, self._unpacked if self.packed else self._file)
        if len(found) != nbytes:
            raise RecordingError(
                f"{self.path}: the file has changed since it was read. Read it again with aotviz.read_trace."
            )
        return found

    def _pieces(self) -> Iterator[tuple[bytes, int]]:
        at = 0
        while piece := self._read(PIECE_BYTES, at):
            at += len(piece)
            yield piece, at

    def _unpacked_pieces(self) -> Iterator[tuple[bytes, int]]:
        """Like `_pieces`, for a compressed file. Raises zlib.error where the file is damaged or truncated."""
        stretch, begun = zlib.decompressobj(GZIP_FORMAT), False
        for packed, done in self._pieces():
            while packed:
                piece, begun = stretch.decompress(packed, PIECE_BYTES), True
                if piece:
                    yield piece, done
                packed = stretch.unconsumed_tail
                if stretch.eof:  # another gzip file may have been appended
                    packed = stretch.unused_data.lstrip(b"\0")
                    stretch, begun = zlib.decompressobj(GZIP_FORMAT), False
        if rest := stretch.flush():
            yield rest, self.size
        if begun:
            raise zlib.error("it ends too early")

    def _read(self, nbytes: int, at: int, file: Any = None) -> bytes:
        file = file or self._file
        try:
            with self._lock:
                file.seek(at)
                found: bytes = file.read(nbytes)
                return found
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read ({error.strerror or error}).") from error


def find(where: Where) -> tuple[list[LogFile], list[str]]:
    """(the logs, notes about files that were left out). Raises RecordingError if there is no log."""
    wanted = [where] if isinstance(where, (str, os.PathLike)) else list(where)
    if not wanted:
        raise RecordingError("no path was given. Pass a log, a folder of logs, or a pattern such as 'traces/*.log'.")
    logs: dict[str, LogFile] = {}
    others: list[Path] = []
    for item in wanted:
        path = Path(item)
        is_file = path.is_file()
        for found in [path] if is_file else _in_folder(path) if path.is_dir() else _matches(path):
            log = LogFile(found)
            if log.is_log():
                logs.setdefault(os.path.realpath(found), log)
            elif is_file:
                raise RecordingError(_no_log(path, log))
            else:
                others.append(found)
    if not logs:
        looked = f"{len(others)} file{'' if len(others) == 1 else 's'} there" if others else "it is empty"
        names = ", ".join(map(str, wanted))
        raise RecordingError(
            f"{names}: not a log of torch's structured trace ({looked}). To write one, run the program with "
            "TORCH_TRACE=folder in its environment."
        )
    return sorted(logs.values(), key=_order), [_left_out(others)] if others else []


def _in_folder(folder: Path) -> list[Path]:
    """All files in the folder and its subfolders, except for hidden ones."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.extend(Path(root, name) for name in sorted(names) if not name.startswith("."))
    return [path for path in found if path.is_file()]


def _matches(pattern: Path) -> list[Path]:
    found = [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True))]
    if not found:
        what = "no file matches it" if glob.has_magic(str(pattern)) else "there is no such file or folder"
        raise RecordingError(f"{pattern}: {what}. Check the value of TORCH_TRACE.")
    return [path for path in found if path.is_file()]


def _order(log: LogFile) -> tuple[int, list[Any]]:
    """A sort key: by rank, then by path, with numbers in the path compared as numbers."""
    parts = re.split(r"(\d+)", str(log.path))
    return log.rank, [int(part) if part.isdigit() else part for part in parts]


def _no_log(path: Path, log: LogFile) -> str:
    if log._read(8, 0).startswith(b"\x93AOTVIZ"):
        return f"{path}: a recording of aotviz, not a log of torch's. Open it with aotviz.load."
    what = "it is empty" if log.size == 0 else "no line near its beginning belongs to torch's structured trace"
    return f"{path}: {what}. Pass a file that a run with TORCH_TRACE=folder wrote."


def _left_out(others: list[Path]) -> str:
    names = ", ".join(path.name for path in others[:MOST_NAMED])
    more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
    what = "1 file is not a log and was" if len(others) == 1 else f"{len(others)} files are not logs and were"
    return f"{what} left out: {names}{more}"
