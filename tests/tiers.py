"""What `make test` leaves to `make test-all`: see the marker `slow` in pyproject.toml.

A table of programs times a table of ways to compile them is a sweep. `make test` takes each program once, the ways in
turns; `make test-all` takes them all. Of a long table it takes each n-th row, where a test has the marker `every(n)`.

CI takes one of eight shares of what is slow, by its commit (`.ci/run`), and all that is quick.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A parameter set that is for `make test-all` alone."""
    return pytest.param(*values, marks=pytest.mark.slow)


def in_turns(cases: Iterable[Any], ways: Iterable[Any], every: int = 1) -> list[Any]:
    """Parameter sets `(case, way)` of all pairs, slow but for one way a case, of each case or each n-th.

    >>> [(*pair.values, bool(pair.marks)) for pair in in_turns("ab", [1, 2])]
    [('a', 1, False), ('a', 2, True), ('b', 1, True), ('b', 2, False)]
    """
    ways = list(ways)
    return [
        pytest.param(case, way) if turn % every == 0 and turn // every % len(ways) == index else slow(case, way)
        for turn, case in enumerate(cases)
        for index, way in enumerate(ways)
    ]


def is_in(share: str, name: str) -> bool:
    """Whether a slow test with this name belongs to a share such as "1/2", the second of two. "" is all of them.

    >>> [is_in("0/2", "a"), is_in("1/2", "a"), is_in("", "a")]
    [False, True, True]
    """
    number, _, count = share.partition("/")
    return not share or zlib.crc32(name.encode()) % int(count) == int(number)


THEMES: list[Any] = ["light", slow("dark")]
SCREENS: list[Any] = [(1280, "light"), slow(1280, "dark"), (500, "light")]  # width in pixels, theme
