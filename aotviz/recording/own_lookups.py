"""Look-ups in aotviz's own cache, as rows of a recording.

The cache tells all that it knows of each look-up (ir/lookup.py), so no flag for logging is needed. The rows are in the
format of the look-ups in torch's caches, which come from its logs. This module does not import torch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz.ir.lookup import LookUp, Outcome
from aotviz.recording.dynamo_stage import ORIGIN
from aotviz.recording.schema import CacheAnswer, CacheLookup, Differing, KeyDifference, Origin, ReplayRecord
from aotviz.recording.spoken import without_hashes
from aotviz.recording.strings import clean

CACHE = "aotviz"
PROGRAM = "program"  # the ingredient with the text of the graph
DIGEST = re.compile(r"all \d+: \w+")  # of all settings: it differs if one of them does
TORCHS_OUTCOMES = {  # torch has no guard misses of its own: they are misses in its logs
    Outcome.HIT: "hit",
    Outcome.GUARD_MISS: "miss",
    Outcome.MISS: "miss",
    Outcome.BYPASS: "bypass",
}
_NODE = re.compile(r"%\d+")  # the nodes after a new one have other numbers
_INNER = re.compile(r"^graph \d+:$", re.M)
_OPERATOR = re.compile(r"^% = (?!output\(|graph \d).*", re.M)
LONGEST, MOST_LINES = 200, 4  # characters of a line, and lines, that are told of an ingredient


@dataclass(frozen=True)
class Asked:
    """One look-up, and when it was."""

    lookup: LookUp
    unix_ns: int

    @property
    def nbytes(self) -> int:
        pairs = [*self.lookup.ingredients.values(), *(text for pair in self.lookup.differs.values() for text in pair)]
        return sum(map(len, pairs))

    def row(self, add: Callable[[str | None], int], origin: Origin = ORIGIN) -> CacheLookup:
        """The row. Its texts are added by `add`; without an origin it does not refer to a compilation yet."""
        one = self.lookup
        return CacheLookup(
            origin=replace(origin, unix_ns=self.unix_ns),
            cache=CACHE,
            outcome=one.outcome.value,
            key=clean(one.key),
            components=[add(f"{name}: {text}") for name, text in one.ingredients.items()],
            component_hashes=[add(_hash(text)) for text in one.ingredients.values()],
            reason=add(one.reason or None),
            fields={},
            place=add(one.where or None),
            nearest=clean(one.nearest),
            differs=[KeyDifference(clean(name), add(was), add(now)) for name, (was, now) in one.differs.items()],
            saved_ns=one.saved_ns,
            saved_at_unix_s=one.saved_at_unix_s,
        )


def answer(lookup: LookUp) -> CacheAnswer:
    """The look-up in short.

    >>> answer(LookUp(Outcome.MISS, "b1", nearest="a0", differs={"torch": ("2.12", "2.13")})).words
    'the nearest earlier key differs in torch'
    >>> other = {"program": ("input\\n%1 = .sin(%0)", "input\\ninput\\n%2 = .add(%0, %1)\\n%3 = .exp(%2)")}
    >>> answer(LookUp(Outcome.MISS, "b1", nearest="a0", differs=other)).words
    'the cache has only other programs'
    """
    unlike = PROGRAM in lookup.differs and not similar(*lookup.differs[PROGRAM])
    differs = {} if unlike else lookup.differs
    return CacheAnswer(
        outcome=lookup.outcome.value,
        words="the cache has only other programs" if unlike else clean(_words(lookup)),
        place=clean(lookup.where),
        key=lookup.key,
        nearest="" if unlike else lookup.nearest,
        differs=[_differing(clean(name), *texts) for name, texts in differs.items()],
        saved_ns=lookup.saved_ns,
        saved_at_unix_s=lookup.saved_at_unix_s,
    )


def similar(before: str, after: str) -> bool:
    """Whether two programs are two versions of one: at their beginning and end, most operators of the longer one are
    in both, or most of their graphs are the same. Inputs and outputs say nothing, as every program has them. Graphs
    inside of others are the branches of a `cond`, or the forward and backward of an autograd.Function.

    >>> similar("input\\n%1 = .sin(%0)\\n%2 = output((%1))", "input\\n%1 = .exp(%0)\\n%2 = output((%1))")
    False
    >>> whole = "%1 = graph 0\\n%2 = graph 1\\ngraph 0:\\n%3 = .sin(%0)\\ngraph 1:\\n"
    >>> similar(whole + "%4 = .cos(%0)", whole + "%4 = .exp(%0)\\n" * 9)
    True
    """
    was, now = (_NODE.sub("%", text) for text in (before, after))
    graphs, others = map(_INNER.split, (was, now))
    same = sum(one == other for one, other in zip(graphs, others, strict=False))
    if was == now or 2 * same > max(len(graphs), len(others)) > 1:
        return True
    one, other = (_OPERATOR.findall(text) for text in (was, now))
    start = _common(one, other)
    end = _common(one[start:][::-1], other[start:][::-1])
    return 2 * (start + end) > max(len(one), len(other))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many are equal before the first that differs.

    >>> _common("abc", "abd"), _common("ab", "abc")
    (2, 2)
    """
    pairs = zip(one, other, strict=False)
    return next((i for i, (was, now) in enumerate(pairs) if was != now), min(len(one), len(other)))


def _words(lookup: LookUp) -> str:
    match lookup.outcome:
        case Outcome.HIT:
            return "the program was not compiled, because the cache has it"
        case Outcome.MISS if lookup.differs:
            *first, last = lookup.differs
            names = f"{', '.join(first)} and {last}" if first else last
            return f"the nearest earlier key differs in {names}"
        case Outcome.MISS:
            return "the cache has nothing like it"
    return lookup.reason or "the reason is not known"


def _differing(name: str, before: str, after: str) -> Differing:
    was, now = (without_hashes(clean(line)) for line in _lines(before, after))
    if was == now:
        return Differing(name, "", "")
    absent = "the default" if "settings" in name and (was or now) else ""  # only other settings have a line
    return Differing(name, was or absent, now or absent)


def _lines(before: str, after: str) -> tuple[str, str]:
    """The first lines that differ.

    >>> _lines("a = 1\\nb = 2\\nall 9: 1f", "a = 1\\nb = 3\\nall 9: 2e")
    ('b = 2', 'b = 3')
    >>> _lines("%1 = sin\\n%2 = cos", "%1 = sin\\n%2 = exp\\n%3 = cos")
    ('%2 = cos', '%2 = exp')
    """
    was, now = before.splitlines(), after.splitlines()
    if any(line.startswith("%") for line in now):  # a program: its later lines follow from the first
        pairs = zip_longest(was, now, fillvalue="")
        one, other = next(((one, other) for one, other in pairs if one != other), ("", ""))
        return one[:LONGEST], other[:LONGEST]
    gone, new = ([line for line in mine if line not in theirs] for mine, theirs in ((was, set(now)), (now, set(was))))
    told = [[line for line in lines if not DIGEST.fullmatch(line)] for lines in (gone, new)]
    gone, new = told if any(told) else [gone, new]
    one, other = ("\n".join(line[:LONGEST] for line in lines[:MOST_LINES]) for lines in (gone, new))
    return one, other


def logged(lookup: LookUp) -> dict[str, Any]:
    """A look-up as torch logs one in its AOTAutograd cache, and what only aotviz's cache tells.

    >>> found = logged(LookUp(Outcome.MISS, "b1", {"torch": "2.13"}, nearest="a0", differs={"torch": ("2.12", "2.13")}))
    >>> found["key"], found["cache_state"], read(found) == LookUp(Outcome.MISS, "b1", {"torch": "2.13"}, "", "", "a0",
    ...     {"torch": ("2.12", "2.13")})
    ('b1', 'miss', True)
    """
    return {
        "key": lookup.key,
        "cache_state": TORCHS_OUTCOMES[lookup.outcome],
        "cache_bypass_reason": lookup.reason if lookup.outcome is Outcome.BYPASS else None,
        "components": [f"[{_hash(text)}] {name}: {text}" for name, text in lookup.ingredients.items()],
        "time_saved_ns": lookup.saved_ns or None,
        CACHE: {name: told for name, told in msgspec.to_builtins(lookup).items() if name != "key"},
    }


def read(said: Mapping[str, Any]) -> LookUp | None:
    """The look-up that a log has (`logged`); None if it is one in torch's own cache.

    Raises:
        msgspec.ValidationError: it is not in our format.
    """
    if CACHE not in said:
        return None
    found = {"key": said.get("key", ""), **said[CACHE]} if isinstance(said[CACHE], dict) else said[CACHE]
    return msgspec.convert(found, LookUp)


def replay(asked: Sequence[Asked], note: str) -> ReplayRecord:
    """The mark of a compilation that the last of these look-ups found."""
    found = next((one.lookup for one in reversed(asked) if one.lookup.outcome is Outcome.HIT), None)
    if found is None:
        return ReplayRecord("", 0, 0.0, note)
    return ReplayRecord(found.key, found.saved_ns, found.saved_at_unix_s, note)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
