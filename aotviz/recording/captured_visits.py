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


def difference(before: Sequence[Done], now: Sequence[Done], hooks: Collection[str]) -> str:
    """The first difference, in words that explain/guard_failures.py reads; "" if there is none. `hooks` are the kinds
    of hooks."""
    for number, (was, one) in enumerate(zip_longest(before, now), 1):
        if was is None or one is None or was.node != one.node:
            names = [visit.node if visit else "absent" for visit in (was, one)]
            return f"autograd node {number} was {names[0]} and is {names[1]}"
        if was.steps == one.steps:
            continue
        if (ADDS in was.steps) != (ADDS in one.steps):
            values = ("a tensor", "None") if ADDS in was.steps else ("None", "a tensor")
            return f"{one.subject or 'a leaf'}.grad was {values[0]} and is {values[1]}"
        counts = Counter(was.steps), Counter(one.steps)
        for kind in hooks:
            if counts[0][kind] != counts[1][kind]:
                return f"the number of {kind} at {one} changed from {counts[0][kind]} to {counts[1][kind]}"
        return f"what {one} does changed"
    return ""
