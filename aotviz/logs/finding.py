"""Find the logs that a user asks for: files, folders, patterns and URLs. A folder may also contain other files."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeGuard

from aotviz.logs.log_files import AnyLog, LogFile
from aotviz.recording.files import RecordingError

Where = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Remote = Callable[[str], tuple[Sequence[AnyLog], list[str]]]

MOST_NAMED = 5  # files that a note names
NOTHING_COMPILED = (
    "If this is the value of TORCH_TRACE, nothing was compiled: torch makes the folder only when something is."
)
EMPTY = """
What to do, the likeliest reason first:
- The program calls another method than forward, as in model.encode(x): compile that method itself,
  model.encode = torch.compile(model.encode). torch.compile(model) and model.compile() compile forward alone.
- An error came before anything was compiled: read what the program printed.
- No call reached the compiled function: call what torch.compile returned, in place of the original.
- model.compile() compiles nothing of a module of torch's own class, such as nn.Sequential: use
  model = torch.compile(model).
- The function is a generator (it has yield in it), which is not compiled: compile what it calls for each element."""


def is_url(item: str | os.PathLike[str]) -> TypeGuard[str]:
    """Whether this is a URL, as opposed to a path on this machine.

    >>> is_url("s3://bucket/job/"), is_url("traces/*.log"), is_url("C:/traces")
    (True, False, False)
    """
    return isinstance(item, str) and "://" in item


def find(where: Where, limit_mb: int | None, remote: Remote) -> tuple[list[AnyLog], list[str]]:
    """(the logs, notes about files that were left out). Raises RecordingError if there is no log.

    `remote` is called for each URL, and returns its logs and the names of other files there.
    """
    wanted = [where] if isinstance(where, (str, os.PathLike)) else list(where)
    if not wanted:
        raise RecordingError("no path was given. Pass a log, a folder of logs, or a pattern such as 'traces/*.log'.")
    logs: dict[str, AnyLog] = {}
    others: list[str] = []
    links: list[str] = []
    for item in wanted:
        if is_url(item):
            found_logs, found_others = remote(item)
            logs |= {log.name: log for log in found_logs}
            others += found_others
            continue
        path = Path(item)
        is_file, outside = path.is_file(), list[str]()
        if path.is_dir():
            paths, outside = _in_folder(path)
        else:
            paths = [path] if is_file else _matches(path)
        links += outside
        for found in paths:
            log = LogFile(found, limit_mb)
            if log.is_log():
                logs.setdefault(os.path.realpath(found), log)
            elif is_file:
                raise RecordingError(no_log(log))
            else:
                others.append(found.name)
    if not logs:
        looked = f"{len(others)} file{'' if len(others) == 1 else 's'} there" if others else "it is empty"
        names = ", ".join(map(str, wanted))
        early = "" if others else f" If it was set, nothing was compiled.{EMPTY}"
        raise RecordingError(
            f"{names}: not a log of torch's structured trace ({looked}). To write one, run the program with "
            f"TORCH_TRACE=folder in its environment.{early}"
        )
    notes = [_left_out(others)] if others else []
    if links:
        what = (
            "1 link leads out of the folder and was"
            if len(links) == 1
            else f"{len(links)} links lead out of the folder and were"
        )
        notes.append(f"{what} not followed: {_named(links)}. Pass the path of a target to read it.")
    return sorted(logs.values(), key=lambda log: log.order), notes


def _in_folder(folder: Path) -> tuple[list[Path], list[str]]:
    """(all files in the folder and its subfolders, names of links that lead out of it), both without hidden ones.

    A folder may come from a stranger, and a link in it may name any file of the reader. It is not followed.
    """
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.extend(Path(root, name) for name in sorted(names) if not name.startswith("."))
    whole = os.path.realpath(folder)
    inside = [path for path in found if Path(os.path.realpath(path)).is_relative_to(whole)]
    outside = sorted(path.name for path in set(found) - set(inside))
    return [path for path in inside if path.is_file()], outside


def _matches(pattern: Path) -> list[Path]:
    found = [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True))]
    if not found:
        if glob.has_magic(str(pattern)):
            raise RecordingError(f"{pattern}: no file matches it. Check the value of TORCH_TRACE.")
        raise RecordingError(f"{pattern}: there is no such file or folder. {NOTHING_COMPILED}{EMPTY}")
    return [path for path in found if path.is_file()]


def no_log(log: AnyLog) -> str:
    """Why a file that the user named cannot be read."""
    if log.read(8, 0).startswith(b"\x93AOTVIZ"):
        return f"{log.name}: a recording of aotviz, not a log of torch's. Open it with aotviz.load."
    what = "it is empty" if log.size == 0 else "no line near its beginning belongs to torch's structured trace"
    return f"{log.name}: {what}. Pass a file that a run with TORCH_TRACE=folder wrote."


def _left_out(others: list[str]) -> str:
    what = "1 file is not a log and was" if len(others) == 1 else f"{len(others)} files are not logs and were"
    return f"{what} left out: {_named(others)}"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"
