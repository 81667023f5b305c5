"""Open a log file, read it piece by piece, and later fetch texts from it.

A log may be of any length, compressed by gzip, or still being written. A file stays open as long as its texts may be
needed, so that moving or deleting it does no harm. Of very many files, only the first MOST_OPEN stay open, because
systems allow a process about 1000; the others are opened each time. So they are in other processes.

A few MB of gzip can contain many GB, and a log may come from a stranger. Torch's logs become 5 to 7 times smaller, so a
file may unpack to 20 times its size, or to 128 MiB if that is more. Beyond that nothing is unpacked or stored, and an
error names the option that allows more.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

from aotviz.logs.lines import PREFIX
from aotviz.recording.files import RecordingError

SNIFFED_BYTES = 1 << 20  # a log must have at least one good line in its first so many bytes
ENDS_BYTES = 4096  # of each end, which are part of a file's Identity
PIECE_BYTES = 1 << 21
PACKED_BYTES = 1 << 14  # of a compressed file that are unpacked at once: a file of empty members copies them for each
UNPACKED_BYTES, UNPACKED_TIMES = 1 << 27, 20  # what a compressed file may unpack to, whichever is more
MOST_OPEN = 500  # log files that stay open
GZIP = b"\x1f\x8b"
GZIP_FORMAT = 16 + zlib.MAX_WBITS
RANK = re.compile(r"rank_?(\d{1,9})(?!\d)")
DIGITS = re.compile(r"(\d{1,18})")
LINE = re.compile(rb"^[A-Z\[]", re.M)


@dataclass(frozen=True)
class Identity:
    """Facts about a log file that show that it has not changed since it was read."""

    path: str
    size: int
    mtime_ns: int
    ends: str


class AnyLog:
    """A log that can be read, wherever it is. A compressed one may unpack to `limit_mb` MiB; None: see above.

    `name` is its path or URL. It can be sent to another process, which opens the file again.
    """

    cut = ""  # why a compressed file could not be read to its end

    def __init__(self, name: str, size: int, mtime_ns: int, limit_mb: int | None) -> None:
        self.name, self.size, self.mtime_ns, self.limit_mb = name, size, mtime_ns, limit_mb
        self._lock = threading.Lock()
        usual = max(UNPACKED_BYTES, UNPACKED_TIMES * self.size)
        self._limit_bytes = usual if limit_mb is None else limit_mb << 20

    @property
    def _file(self) -> Any:
        """The file, open for reading."""
        raise NotImplementedError

    @cached_property
    def packed(self) -> bool:
        """Whether it is compressed by gzip."""
        return self.read(2, 0) == GZIP

    @property
    def folder(self) -> str:
        return self.name.replace("\\", "/").rpartition("/")[0]

    @property
    def base_name(self) -> str:
        return self.name.replace("\\", "/").rpartition("/")[2]

    @property
    def rank(self) -> int:
        """The rank in the file's name, which is `..._rank_3_....log` in torch's logs, or -1."""
        match = RANK.search(self.base_name)
        return int(match[1]) if match else -1

    @property
    def order(self) -> tuple[int, list[Any]]:
        """A sort key: by rank, then by path, with numbers in the path compared as numbers."""
        parts: list[Any] = DIGITS.split(self.name)
        parts[1::2] = map(int, parts[1::2])
        return self.rank, parts

    def head(self) -> bytes:
        """The first bytes of the log."""
        try:
            return next(self._all_pieces(), (b"", 0))[0][:SNIFFED_BYTES]
        except zlib.error:
            return b""

    def ends(self) -> tuple[bytes, bytes]:
        """The first bytes of the log, and the last; of a compressed log only the first, because it is not unpacked."""
        tail = b"" if self.packed else self.read(SNIFFED_BYTES, max(0, self.size - SNIFFED_BYTES))
        return self.head(), tail

    def is_log(self) -> bool:
        """Whether any line near the beginning belongs to torch's trace."""
        head = self.head()
        return any(PREFIX.match(head, found.start()) for found in LINE.finditer(head))

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """(content, bytes of the file read so far), piece by piece.

        A compressed file that is truncated ends early, and `cut` says why. Raises RecordingError if the file cannot be
        read, or unpacks to more than the limit.
        """
        try:
            yield from self._all_pieces()
        except zlib.error as error:
            self.cut = str(error)

    def _all_pieces(self) -> Iterator[tuple[bytes, int]]:
        return self._unpacked_pieces() if self.packed else self._pieces()

    def _pieces(self, nbytes: int = PIECE_BYTES) -> Iterator[tuple[bytes, int]]:
        at = 0
        while piece := self.read(nbytes, at):
            at += len(piece)
            yield piece, at

    def _unpacked_pieces(self) -> Iterator[tuple[bytes, int]]:
        """Like `_pieces`, for a compressed file. Raises zlib.error where the file is damaged or truncated."""
        stretch, begun, unpacked = zlib.decompressobj(GZIP_FORMAT), False, 0
        for packed, done in self._pieces(PACKED_BYTES):
            while packed:
                piece, begun = stretch.decompress(packed, PIECE_BYTES), True
                unpacked += len(piece)
                if unpacked > self._limit_bytes:
                    raise RecordingError(
                        f"{self.name}: it unpacks to more than {self._limit_bytes >> 20} MiB, from {self.size >> 10} "
                        "KiB. If you trust it, allow more: read_trace(..., limit_mb=N), or --limit-mb N."
                    )
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

    def read(self, nbytes: int, at: int, file: Any = None) -> bytes:
        """Bytes of the file, or of `file`. Raises RecordingError if it cannot be read."""
        file = file or self._file
        try:
            with self._lock:
                file.seek(at)
                found: bytes = file.read(nbytes)
                return found
        except OSError as error:
            raise RecordingError(f"{self.name}: cannot be read ({error.strerror or error}).") from error


_open_logs: WeakSet[LogFile] = WeakSet()


class LogFile(AnyLog):
    """A log of this machine, open as long as this object lives."""

    def __init__(self, path: Path, limit_mb: int | None = None) -> None:
        self.path = path
        file = self._open()
        status = os.fstat(file.fileno())
        self._opened: IO[bytes] | None = file
        if len(_open_logs) < MOST_OPEN:
            _open_logs.add(self)
            weakref.finalize(self, file.close)
        else:
            file.close()
            self._opened = None
        super().__init__(str(path), status.st_size, status.st_mtime_ns, limit_mb)
        self._unpacked: Any = None  # a temporary file with the content of a compressed one

    def __reduce__(self) -> tuple[Any, ...]:
        return LogFile, (self.path, self.limit_mb)

    @property
    def _file(self) -> Any:
        return self._opened

    def _open(self) -> IO[bytes]:
        try:
            return open(self.path, "rb")
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read ({error.strerror or error}).") from error

    def read(self, nbytes: int, at: int, file: Any = None) -> bytes:
        if file is not None or self._opened is not None:
            return super().read(nbytes, at, file)
        with self._open() as file:
            return super().read(nbytes, at, file)

    @property
    def identity(self) -> Identity:
        ends = blake2b(self.read(ENDS_BYTES, 0), digest_size=16)
        ends.update(self.read(ENDS_BYTES, max(0, self.size - ENDS_BYTES)))
        return Identity(str(self.path.absolute()), self.size, self.mtime_ns, ends.hexdigest())

    def kept_pieces(self) -> Iterator[tuple[bytes, int]]:
        """Like `pieces`. The content of a compressed file is also stored in a temporary file, for `fetch`."""
        if not self.packed:
            yield from self.pieces()
            return
        spool = tempfile.TemporaryFile(prefix="aotviz-")  # noqa: SIM115  # it stays open as long as this object lives
        weakref.finalize(self, spool.close)
        try:
            for piece, done in self.pieces():
                spool.write(piece)
                yield piece, done
        except RecordingError:
            spool.close()
            raise
        spool.flush()
        self._unpacked = spool

    def fetch(self, at: int, nbytes: int) -> bytes:
        """Bytes of the log. Raises RecordingError if the file no longer contains them."""
        if self.packed and self._unpacked is None:
            for _ in self.kept_pieces():
                pass
        found = self.read(nbytes, at, self._unpacked if self.packed else self._file)
        if len(found) != nbytes:
            raise RecordingError(
                f"{self.path}: the file has changed since it was read. Read it again with aotviz.read_trace."
            )
        return found
