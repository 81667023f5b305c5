"""Find where in the user's program a node or an input comes from, by parsing torch's stacks, paths and sources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

SUBSCRIPT = re.compile(r"""(?:^[LG])?\[['"]([^'"]*)['"]\]""")
FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+)(?:, in (?P<function>.*))?')


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's program; `line` is 0 if it is unknown."""

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else ""


UNKNOWN = SourceLine("", 0, "", "")


@lru_cache(4096)  # many nodes come from the same line
def innermost(stack: str) -> SourceLine:
    r"""The last frame of a stack that was printed by Python.

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


@lru_cache(4096)
def module_path(path: str) -> str:
    """A module's path as the user would write it. Dynamo writes it as an expression on the frame's local variables.

    >>> [module_path(path) for path in ("L['self'].h.0", "L['self']", "G['model']._modules['h']", "h.0")]
    ['h.0', '', 'model.h', 'h.0']
    """
    if path.startswith(("L[", "G[", "L__self__")):
        path = SUBSCRIPT.sub(r".\1", path.removeprefix("L__self__")).replace("._modules", "")[1:].lstrip("._")
        first, _, rest = path.partition(".")
        return rest if first in ("self", "fn") else path
    return path


def user_name(source: str) -> str:
    """A Dynamo source (an expression on the frame's variables) as the user would write it.

    >>> [user_name(s) for s in ("L['x']", "L['self']._modules['h']._parameters['weight']", "L['xs'][0].grad")]
    ['x', 'h.weight', 'xs[0].grad']
    """
    return module_path(source.replace("._parameters", "").replace("._buffers", "")) or source
