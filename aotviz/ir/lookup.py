"""The answer of the cache about one compilation, as its recording tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    """What became of one look-up."""

    HIT = "hit"
    GUARD_MISS = "guard miss"  # there are entries under the key, but the sizes of this call do not fulfil their guards
    MISS = "miss"
    BYPASS = "bypass"  # the program cannot be cached


@dataclass(frozen=True)
class LookUp:
    """One look-up. What a key is made of are its ingredients: name -> text."""

    outcome: Outcome
    key: str = ""  # hex; "" if there is none
    ingredients: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""  # why it was bypassed or why the guards failed, in one sentence
    where: str = ""  # the user's line that the reason is about: "file:line in function"
    nearest: str = ""  # after a miss: the earlier key with the fewest other ingredients
    differs: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # ingredient -> (text in the nearest, now)
    saved_ns: int = 0  # after a hit: how long compiling took when the entry was made
    saved_at_unix_s: float = 0.0  # after a hit: when the entry was made
