"""Stacks in a log, whose files are numbers of a table of texts.

A process numbers its files once, for all logs that it writes: draft export begins a new log for each export, and a file
may be named in a log that is read later. Until then a text has a placeholder, which `resolved` replaces at the end.
"""

from __future__ import annotations

import re
from typing import Any

PLACEHOLDER = re.compile(r"<file (\d{1,9}) of process (\d{1,18})>")


class Files:
    """The names of the files of one process in one log, and in all of its logs."""

    def __init__(self, process: int, everywhere: dict[tuple[int, int], str]) -> None:
        self._process, self._here, self._everywhere = process, dict[int, str](), everywhere

    def add(self, number: int, name: str) -> None:
        self._here[number] = name
        self._everywhere[self._process, number] = name

    def name(self, number: Any) -> str:
        if type(number) is not int:
            return str(number)
        return self._here.get(number) or f"<file {number} of process {self._process}>"


def resolved(text: str, everywhere: dict[tuple[int, int], str]) -> str:
    """The text with the files' names that were found in other logs of the process.

    >>> resolved('File "<file 3 of process 7>"; <file 4 of process 7>', {(7, 3): "a.py"})
    'File "a.py"; <file 4>'
    """
    return PLACEHOLDER.sub(lambda match: everywhere.get((int(match[2]), int(match[1])), f"<file {match[1]}>"), text)


def stack_text(frames: list[dict[str, Any]], files: Files) -> str:
    """A logged stack in the format of a traceback, with the innermost frame last."""
    lines = []
    for frame in frames:
        lines.append(f'  File "{files.name(frame.get("filename"))}", line {frame.get("line")}, in {frame.get("name")}')
        if frame.get("loc"):
            lines.append(f"    {frame['loc']}")
    return "\n".join(lines)
