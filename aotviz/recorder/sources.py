"""Where in the user's program a node comes from, read out of the recorded stack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+)(?:, in (?P<function>.*))?')


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's program; `line` is 0 where it is unknown."""

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else ""


UNKNOWN = SourceLine("", 0, "", "")


@lru_cache(4096)  # a line of the program has many nodes
def innermost(stack: str) -> SourceLine:
    r"""The last frame of a stack as Python prints it.

    >>> print(innermost('  File "m.py", line 3, in forward\n    y = f(x)\n  File "n.py", line 9, in f\n    return x'))
    n.py:9
    """
    lines = [line.strip() for line in stack.splitlines()]
    for number in range(len(lines) - 1, -1, -1):
        frame = FRAME.fullmatch(lines[number])
        if frame is not None:
            code = " ".join(line for line in lines[number + 1 :] if line)
            return SourceLine(frame["file"], int(frame["line"]), frame["function"] or "", code)
    return UNKNOWN
