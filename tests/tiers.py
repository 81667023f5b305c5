"""What `make test` leaves to `make test-all`.

- What has the marker `slow`. A table of programs times a table of ways to compile them is a sweep. `make test` takes
  each program once, the ways in turns; `make test-all` takes them all. Of a long table it takes each n-th row, where a
  test has the marker `every(n)`.
- What takes long: tests whose rows took more than a third of a second, on average, when they were measured. Their
  names are in `long.txt`. `make test ARGS=FILE` runs them.

CI takes one of ten shares of both, by its commit (`.ci/run`), and all that is quick.

    make test-all ARGS="-m 'not slow' --junitxml=FILE"     # on a machine that does nothing else
    python -m tests.tiers FILE                             # writes `long.txt`
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as tree
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LONG = ROOT / "tests" / "long.txt"
LIMIT = 1 / 3  # seconds


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
    """Whether a test with this name, which takes long, belongs to a share such as "1/2", the second of two. "" is all
    of them, and "none" leaves them out.

    >>> [is_in("0/2", "a"), is_in("1/2", "a"), is_in("", "a"), is_in("none", "a")]
    [False, True, True, False]
    """
    number, _, count = share.partition("/")
    return not share or (share != "none" and zlib.crc32(name.encode()) % int(count) == int(number))


def long_tests() -> frozenset[str]:
    """The names in `long.txt`, such as "tests/test_a.py::test_b": without a table's rows."""
    return frozenset(LONG.read_text().splitlines())


def node(name: str) -> str:
    """pytest's name of a test, from that of its report: "tests.ui.test_states::test_a"."""
    module, _, test = name.partition("::")
    return f"{module.replace('.', '/')}.py::{test}"


def long_in(report: str) -> list[str]:
    """Their names, from pytest's JUnit report.

    >>> case = '<testcase classname="tests.a.test_b" name="test_{}@test_b.py" time="{}"/>'
    >>> rows = [case.format(*row) for row in [("c[0]", 0.1), ("c[1]", 1.0), ("d", 0.1)]]
    >>> long_in(f"<testsuite>{''.join(rows)}</testsuite>")
    ['tests/a/test_b.py::test_c']
    """
    seconds = defaultdict(list)
    for case in tree.fromstring(report).iter("testcase"):
        module = case.get("classname", "").partition(".Test")[0]
        function = re.split(r"[\[@]", case.get("name", ""))[0]
        seconds[node(f"{module}::{function}")].append(float(case.get("time", 0)))
    return sorted(name for name, rows in seconds.items() if mean(rows) > LIMIT)


THEMES: list[Any] = ["light", slow("dark")]
SCREENS: list[Any] = [(1280, "light"), slow(1280, "dark"), (500, "light")]  # width in pixels, theme


if __name__ == "__main__":
    LONG.write_text("\n".join(long_in(Path(sys.argv[1]).read_text())) + "\n")
