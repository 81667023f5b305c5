"""Find where in the user's program a node or an input comes from, by parsing torch's stacks, paths and sources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

SUBSCRIPT = re.compile(r"""(?:^[LG])?\[['"]([^'"]*)['"]\]""")
FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d{1,9})(?:, in (?P<function>.*))?')


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's program; `line` is 0 if it is unknown."""

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else ""

    @cached_property  # many values come from the same line
    def with_code(self) -> str:
        return f"{self} {self.code}".strip()


UNKNOWN = SourceLine("", 0, "", "")


@lru_cache(4096)  # many nodes come from the same line
def user_frames(stack: str) -> tuple[SourceLine, ...]:
    """The frames of a stack that was printed by Python, outermost first.

    >>> user_frames('  File "model.py", line 4, in f\\n    return x * n')
    (SourceLine(file='model.py', line=4, function='f', code='return x * n'),)
    """
    frames: list[tuple[re.Match[str], list[str]]] = []  # each with its lines of code
    inside, indent = False, 0
    for written in stack.splitlines():
        line, before = written.strip(), len(written) - len(written.lstrip())
        if frame := FRAME.fullmatch(line):
            frames.append((frame, []))
            inside, indent = True, before
        elif inside and line and before < indent:
            inside = False  # the error that ends a traceback
        elif inside and line.strip("^~ "):  # Python marks a part of the line above by a row of carets
            frames[-1][1].append(line)
        elif not line:
            inside = False  # what follows is not the frame's code
    return tuple(SourceLine(m["file"], int(m["line"]), m["function"] or "", " ".join(code)) for m, code in frames)


def innermost(stack: str) -> SourceLine:
    """The last frame of a stack, or UNKNOWN."""
    _, begins, last = stack.rpartition('  File "')
    return next(reversed(user_frames(begins + last) or user_frames(stack)), UNKNOWN)


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
