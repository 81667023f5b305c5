"""How two captured backwards differ, told from what is done at each node of their autograd graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest

SETS, ADDS = "sets the gradient", "adds to the gradient"  # what AccumulateGrad does
ANOTHER_KEY = "something else that autograd's nodes keep changed"
SIZES = "sizes that autograd's nodes keep changed"


@dataclass(frozen=True)
class Done:
    """One autograd node of a captured backward."""

    node: str  # "MulBackward0"
    subject: str  # of AccumulateGrad: the leaf; "" if unknown
    steps: tuple[str, ...]  # what is done: SETS, ADDS, kinds of hooks, and other steps

    def __str__(self) -> str:
        return f"{self.node} of {self.subject}" if self.subject else self.node


Pair = tuple[int | None, int | None]  # places of one node in two autograd graphs; None where a graph lacks it


def pairs(before: Sequence[str], now: Sequence[str]) -> list[Pair]:
    """Which nodes of two autograd graphs correspond: those of the longest equal beginning and end, and in order those
    between.

    >>> pairs(["Sum", "Sin", "Acc"], ["Sum", "Mul", "Sin", "Acc"])
    [(0, 0), (None, 1), (1, 2), (2, 3)]
    """
    shorter = min(len(before), len(now))
    first = next((k for k in range(shorter) if before[k] != now[k]), shorter)
    last = next((k for k in range(shorter - first) if before[-1 - k] != now[-1 - k]), shorter - first)
    ends = len(before) - last, len(now) - last
    return [
        *((k, k) for k in range(first)),
        *zip_longest(range(first, ends[0]), range(first, ends[1])),
        *zip(range(ends[0], len(before)), range(ends[1], len(now)), strict=True),
    ]


def differences(before: Sequence[Done], now: Sequence[Done], hooks: Collection[str]) -> list[str]:
    """All differences, in words that explain/guard_failures.py reads: first in the nodes, then in what is done at each.
    `hooks` are the kinds of hooks."""
    nodes: list[str] = []
    steps: list[str] = []
    for i, j in pairs([one.node for one in before], [one.node for one in now]):
        was, one = None if i is None else before[i], None if j is None else now[j]
        if was is None or one is None or was.node != one.node:
            names = [visit.node if visit else "absent" for visit in (was, one)]
            number = (i if j is None else j) or 0
            nodes.append(f"autograd node {number + 1} was {names[0]} and is {names[1]}")
        elif was.steps != one.steps:
            steps += _steps(was, one, hooks)
    return [*nodes, *steps]


def _steps(was: Done, one: Done, hooks: Collection[str]) -> list[str]:
    """How what is done at one node differs."""
    found: list[str] = []
    if (ADDS in was.steps) != (ADDS in one.steps):
        values = ("a tensor", "None") if ADDS in was.steps else ("None", "a tensor")
        found.append(f"{one.subject or 'parameter'}.grad was {values[0]} and is {values[1]}")
    counts = Counter(was.steps), Counter(one.steps)
    found += [
        f"the number of {kind} at {one} changed from {counts[0][kind]} to {counts[1][kind]}"
        for kind in hooks
        if counts[0][kind] != counts[1][kind]
    ]
    return found or [f"what {one} does changed"]
