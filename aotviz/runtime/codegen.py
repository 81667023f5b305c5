"""Generating Python that is readable and runs.

`Source` collects lines together with the facts that required them, and names for the objects that the lines use.
`build` compiles it, registers it with linecache (so that pdb steps in it and tracebacks show it) for as long as the
function lives, and returns the function.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import keyword
import linecache
import re
import unicodedata
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotviz.ir.forms import Note
from aotviz.ir.spelling import spoken
from aotviz.torch_private import distributed

_NUMBERS = itertools.count()
_LOCALS = "args kwargs inputs out saved ctx gradients run result grad_mode i node".split()
_RESERVED = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *_LOCALS}


class Source:
    """A Python module under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notes: list[Note] = []
        self.names: dict[str, Any] = {}  # what the source refers to
        self.members: dict[int, str] = {}  # variables of inputs that a rewrite replaced
        self._taken: set[str] = set(_RESERVED)
        self._bound: dict[Any, str] = {}
        self._level = 0
        self._fact = ""

    def line(self, text: str, fact: str = "", subject: str = "", *, comment: bool = True) -> None:
        """Add a line at the current indentation, required by `fact`. See Note [Safe names] in ir/spelling.py.

        Without `comment`, the reason is recorded only as a note: for lines that every such source has.
        """
        if not text.isprintable():
            raise ValueError(f"no line of source: {text!r}")
        pad = "    " * self._level
        fact, subject = spoken(fact), spoken(subject)
        if comment and fact and fact != self._fact:
            self.lines.append(f"{pad}# {fact}")
        self._fact = fact if comment else ""
        self.lines.append(pad + text)
        if not fact:
            return
        number = len(self.lines)
        last = self.notes[-1] if self.notes else None
        if last is not None and (last.fact, last.subject) == (fact, subject) and last.last == number - 1:
            self.notes[-1] = Note(last.first, number, fact, subject)
        else:
            self.notes.append(Note(number, number, fact, subject))

    def blank(self) -> None:
        self.lines.append("")
        self._fact = ""

    def indent(self) -> None:
        self._level += 1

    def dedent(self) -> None:
        self._level -= 1

    def fresh(self, hint: str) -> str:
        """An unused variable name similar to `hint`. Python treats names as equal if NFKC makes them equal."""
        base = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", hint)).strip("_") or "value"
        base = base if base.isidentifier() else f"v_{base}"
        base = base if base.isidentifier() else "value"
        name = base
        for number in itertools.count(1):
            if name not in self._taken:
                break
            name = f"{base}_{number}"
        self._taken.add(name)
        return name

    def bind(self, hint: str, value: Any) -> str:
        """The name of `value` in the source. The same object keeps its name, and equal devices share one, as do equal
        meshes of devices: torch's tables of DTensors return any mesh that is equal to the one of the call."""
        key = value if isinstance(value, torch.device) or distributed.is_mesh(value) else id(value)
        name = self._bound.get(key)
        if name is None:
            name = self._bound[key] = self.fresh(hint)
            self.names[name] = value
        return name

    def use(self, function: Any) -> str:
        """The name of a function or class in the source: its own, if that is free."""
        return self.bind(function.__name__, function)

    @contextlib.contextmanager
    def block(self, text: str, fact: str = "", *, comment: bool = True) -> Iterator[None]:
        """Add a line, and indent those that follow inside of the context."""
        self.line(text, fact, comment=comment)
        self.indent()
        yield
        self.dedent()

    def member(self, index: int, variable: str) -> None:
        self.members[index] = variable

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def build(self, label: str, function: str) -> tuple[Callable[..., Any], str]:
        """The function of that name, and the file name under which tools find the source."""
        filename = f"<aotviz {next(_NUMBERS)} {spoken(label)}>"
        text = self.text
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        namespace = self.names
        exec(compile(text, filename, "exec"), namespace)
        result: Callable[..., Any] = namespace[function]
        weakref.finalize(result, linecache.cache.pop, filename, None).atexit = False
        return result, filename

    def functions(self, filename: str) -> list[Any]:
        """All functions that `build` made, including those of the `autograd.Function`."""
        made = [value for value in self.names.values() if isinstance(value, type)]
        found = [*self.names.values(), *(getattr(one, name, None) for one in made for name in ("forward", "backward"))]
        return [f for f in found if getattr(getattr(f, "__code__", None), "co_filename", None) == filename]
