"""What `make test` leaves to `make test-all`: see the marker `slow` in pyproject.toml.

A table of programs times a table of ways to compile them is a sweep. `make test` takes each program once, the ways in
turns; `make test-all` takes them all. Of a long table it takes each n-th row, where a test has the marker `every(n)`.
"""

from __future__ import annotations

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


THEMES: list[Any] = ["light", slow("dark")]
SCREENS: list[Any] = [(1280, "light"), slow(1280, "dark"), (500, "light")]  # width in pixels, theme
