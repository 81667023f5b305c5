"""The value of the program's own that makes ranks compile different programs, such as `self.rank`.

A function that branches on such a value guards on it, so the programs of two ranks have guards on it that require
other values. The guard has the line of the branch. A device's number is not such a value: each rank has its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from aotviz.explain import misses
from aotviz.explain.explanation import listed, named_ranks
from aotviz.explain.rows import Facts

KINDS = frozenset({"value", "length", "keys", "attribute", "global state"})  # the same in all processes
DEVICE = re.compile(r"\b(?:cuda|xpu|hpu|mtia|npu)(?::|', index=)\d+")
BRANCH = re.compile(r"(?:el)?if\b|while\b|assert\b|(?>.*?\sif\s).+\selse\s")  # a line that does one thing or another
TOLD = re.compile(r", and `(?P<code>[^`]{1,200})` \((?P<place>\S{1,400}:\d{1,9})\) depends on it")


@dataclass(frozen=True)
class Condition:
    """A value that the programs of the ranks require to be different, and the line that asks for it."""

    name: str
    values: Mapping[str, str]  # rank -> the value
    code: str
    place: str

    @property
    def differs(self) -> str:
        ranks: dict[str, list[str]] = defaultdict(list)
        for rank, value in self.values.items():
            ranks[value].append(rank)
        return f"`{self.name}` is {listed([f'{value} on {named_ranks(same)}' for value, same in ranks.items()])}"

    @property
    def words(self) -> str:
        told = self.differs
        return f"{told}, and `{self.code}` ({self.place}) depends on it" if self.code else told


def find(facts: Facts, places: Mapping[str, int]) -> Condition | None:
    """The value that the compilations of one function on these ranks differ by: first one that a branch asks for."""
    held = {rank: misses.required(facts, place) for rank, place in places.items()}
    found = []
    (first_place, first), *_ = zip(places.values(), held.values(), strict=True)
    for key, guard in first.items():
        values = {rank: known[key].value for rank, known in held.items() if key in known}
        if key[0] in KINDS and len(values) == len(held) and len({DEVICE.sub("", one) for one in values.values()}) > 1:
            made = misses.made_by(facts, first_place, guard) if guard.text else None
            found.append(Condition(key[1], values, made.code if made else "", made.place if made else ""))
    return min(found, key=lambda one: not BRANCH.match(one.code), default=None)
