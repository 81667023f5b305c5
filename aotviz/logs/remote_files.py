"""Logs at a URL, such as "s3://bucket/job/", of any file system that fsspec knows.

Listing and reading are done wherever these functions are called: in this process, or by a task of an executor. What
passes between them is a `RemoteFile`, which names a file and opens it when it is first read.
"""

from __future__ import annotations

import datetime
import glob
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from aotviz.logs.finding import no_log
from aotviz.logs.log_files import AnyLog
from aotviz.recording.files import RecordingError
from aotviz.recording.strings import clean

FOLLOWED = frozenset(("generic", "reference"))  # file systems in which a file names files of others, at any URL or path
AT_ONCE = 16  # files whose beginnings are read at once, because each takes as long as a round trip
MAGIC = re.compile(r"[*?\[]")  # where a pattern begins
MODIFIED = ("mtime", "LastModified", "last_modified", "updated", "created")  # what file systems call the time


class RemoteFile(AnyLog):
    """A file of a fsspec file system."""

    def __init__(
        self, filesystem: Any, path: str, name: str, size: int, mtime_ns: int, limit_mb: int | None = None
    ) -> None:
        super().__init__(name, size, mtime_ns, limit_mb)
        self.filesystem, self.path = filesystem, path

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFile, (self.filesystem, self.path, self.name, self.size, self.mtime_ns, self.limit_mb)

    @cached_property
    def _file(self) -> Any:
        return self.filesystem.open(self.path, "rb")

    def read(self, nbytes: int, at: int, file: Any = None) -> bytes:
        try:
            return super().read(nbytes, at, file)
        except RecordingError:
            raise
        except Exception as error:  # each file system raises errors of its own
            raise RecordingError(f"{self.name}: cannot be read ({type(error).__name__}: {error}).") from error

    def close(self) -> None:
        """Close the file, which is opened again when it is read again."""
        opened = self.__dict__.pop("_file", None)
        if opened is not None:
            opened.close()


def find(url: str, options: dict[str, Any] | None, limit_mb: int | None) -> tuple[list[RemoteFile], list[str]]:
    """(the logs at a URL, the names of other files there). `options` are those of the file system.

    Raises RecordingError if the URL cannot be read, or names a file that is not a log.
    """
    files, is_file = _listed(url, options, limit_mb)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        are_logs = list(threads.map(_is_log, files))
    if is_file and not are_logs[0]:
        raise RecordingError(no_log(files[0]))
    logs = [file for file, is_log in zip(files, are_logs, strict=True) if is_log]
    return logs, [file.base_name for file, is_log in zip(files, are_logs, strict=True) if not is_log]


def _is_log(file: RemoteFile) -> bool:
    try:
        return file.is_log()
    finally:
        file.close()


def _listed(url: str, options: dict[str, Any] | None, limit_mb: int | None) -> tuple[list[RemoteFile], bool]:
    """(the files that a URL names, whether it names one file). Hidden files are left out."""
    followed = FOLLOWED.intersection(part.partition("://")[0].strip().lower() for part in url.split("::"))
    if followed:
        raise RecordingError(
            f"{url}: with {min(followed)!r}, a file decides which files and URLs are read. Name the logs themselves."
        )
    try:
        import fsspec.core  # an optional dependency
    except ImportError:
        raise RecordingError(
            f"{url}: reading a URL needs the package fsspec, which is not installed: pip install 'aotviz[remote]'"
        ) from None
    try:
        filesystem, path = fsspec.core.url_to_fs(url, **options or {})
        is_file = filesystem.isfile(path)
        if is_file:
            found = {path: filesystem.info(path)}
        elif glob.has_magic(path):
            found = filesystem.glob(path, detail=True)
        else:
            found = filesystem.find(path, detail=True)
    except Exception as error:  # each file system raises errors of its own; one that is not installed, ImportError
        raise RecordingError(f"{url}: cannot be read ({type(error).__name__}: {clean(str(error))}).") from error
    if not found:
        what = "no file matches it" if glob.has_magic(path) else "there is no such file or folder"
        raise RecordingError(f"{url}: {what}.")
    fixed = MAGIC.split(path)[0]
    base = path.rstrip("/") if fixed == path else fixed.rpartition("/")[0]
    files = [
        RemoteFile(filesystem, name, filesystem.unstrip_protocol(name), int(info.get("size") or 0), _ns(info), limit_mb)
        for name, info in sorted(found.items())
        if info.get("type") != "directory" and not _is_hidden(name.removeprefix(base))
    ]
    return files, is_file


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _ns(info: dict[str, Any]) -> int:
    """When a file was written, in ns of unix time; now if the file system does not say."""
    for key in MODIFIED:
        moment = info.get(key)
        if isinstance(moment, str):
            try:
                moment = datetime.datetime.fromisoformat(moment)
            except ValueError:
                continue
        if isinstance(moment, datetime.datetime):
            moment = moment.timestamp()
        if isinstance(moment, (int, float)):
            return int(moment * 1e9)
    return time.time_ns()
