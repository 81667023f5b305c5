"""Cures: what to do about a fault. An `Advice` can be made only from a registered cure.

A cure is registered when it is made. tests/cures has, for each, a program that has the fault, the program with the cure
applied, and a check that the fault is gone; a cure without such a program fails a test. So what is advised was
executed. "Nothing is to be done" is a cure too: its program shows that the fault does not come back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

CURES: dict[str, Cure] = {}  # by name


@dataclass(frozen=True, eq=False)
class Cure:
    """What to do about one kind of fault.

    >>> from aotviz.explain.cures import guard_cures
    >>> advice = guard_cures.DEVICE.said(name="x", before="cpu")
    >>> print(advice.at_the_limit())
    If you meant to use one device, move it before the call: `x.to('cpu')`.
    """

    name: str  # of the fault
    does: str  # sentences; `code` in backquotes; {names} are filled in
    kept: str = ""  # said only if torch keeps the further program, that is, below the recompile limit
    of_caller: str = ""  # said in place of `does` about a line of a library, or an argument of a library's function
    anywhere: bool = False  # it needs no edit of the line, so it is said about a line of a library as well
    settings: Mapping[str, object] = field(default_factory=dict)  # of torch, which apply the cure without an edit
    settled: bool = False  # nothing is to be done: the fault does not come back

    def __post_init__(self) -> None:
        if self.name in CURES:
            raise ValueError(f"two cures are named {self.name!r}")
        CURES[self.name] = self

    def said(self, **values: str) -> Advice:
        return Advice((self, values))


class Advice(str):
    """The text of one or more cures, with the names of the user's program."""

    _said: tuple[tuple[Cure, Mapping[str, str]], ...]

    def __new__(cls, *said: tuple[Cure, Mapping[str, str]], full: bool = False, of_library: bool = False) -> Advice:
        """`full`: torch keeps no further program; `of_library`: the values are named as in a library's function."""
        told = (
            (cure.of_caller if of_library and cure.of_caller else cure.does).format_map(values)
            + (f" {cure.kept}" if cure.kept and not full else "")
            for cure, values in said
        )
        advice = super().__new__(cls, " ".join(told))
        advice._said = said
        return advice

    @property
    def cures(self) -> tuple[Cure, ...]:
        return tuple(cure for cure, _ in self._said)

    @property
    def of_caller(self) -> bool:
        """Whether it can be followed without an edit of a library's line."""
        return any(cure.of_caller or cure.anywhere for cure in self.cures)

    @property
    def settled(self) -> bool:
        """Whether nothing is to be done."""
        return bool(self.cures) and all(cure.settled for cure in self.cures)

    def together_with(self, other: Advice) -> Advice:
        return Advice(*self._said, *other._said)

    def where(self, full: bool, of_library: bool) -> Advice:
        """The same at the recompile limit, or about an argument of a library's function."""
        return Advice(*self._said, full=full, of_library=of_library)

    def renamed(self, name: re.Pattern[str], to: str) -> Advice:
        """The same about a value that goes by another name."""
        said = ((cure, {key: name.sub(to, value) for key, value in values.items()}) for cure, values in self._said)
        return Advice(*said)

    def at_the_limit(self) -> Advice:
        return self.where(full=True, of_library=False)


NO_ADVICE = Advice()


def advice(text: str) -> Advice:
    """The advice in a field of the wire format, which is declared as text."""
    if not isinstance(text, Advice):
        raise TypeError(f"not an advice of a registered cure: {text!r}")
    return text
