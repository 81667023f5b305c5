"""Look-ups in aotviz's own cache, as rows of a recording.

The cache tells all that it knows of each look-up (ir/lookup.py), so no flag for logging is needed. The rows are in the
format of the look-ups in torch's caches, which come from its logs. This module does not import torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from aotviz.ir.lookup import LookUp, Outcome
from aotviz.recording.dynamo_stage import ORIGIN
from aotviz.recording.events import CacheAnswer, CacheLookup, KeyDifference, ReplayRecord
from aotviz.recording.strings import StringTable

CACHE = "aotviz"


@dataclass(frozen=True)
class Asked:
    """One look-up, and when it was."""

    lookup: LookUp
    unix_ns: int

    @property
    def nbytes(self) -> int:
        pairs = [*self.lookup.ingredients.values(), *(text for pair in self.lookup.differs.values() for text in pair)]
        return sum(map(len, pairs))

    def row(self, table: StringTable) -> CacheLookup:
        """The row. Its texts are added to `table`; its origin does not refer to a compilation yet."""
        one, add = self.lookup, table.add
        return CacheLookup(
            origin=replace(ORIGIN, unix_ns=self.unix_ns),
            cache=CACHE,
            outcome=one.outcome.value,
            key=one.key,
            components=[add(f"{name}: {text}") for name, text in one.ingredients.items()],
            component_hashes=[add(_hash(text)) for text in one.ingredients.values()],
            reason=add(one.reason or None),
            fields={},
            place=add(one.where or None),
            nearest=one.nearest,
            differs=[KeyDifference(name, add(was), add(now)) for name, (was, now) in one.differs.items()],
            saved_ns=one.saved_ns,
            saved_at_unix_s=one.saved_at_unix_s,
        )


def answer(lookup: LookUp) -> CacheAnswer:
    """The look-up in a sentence.

    >>> answer(LookUp(Outcome.MISS, "b1", nearest="a0", differs={"torch": ("2.12", "2.13")})).words
    'its torch differs from that of the nearest earlier key'
    """
    return CacheAnswer(lookup.outcome.value, _words(lookup), lookup.saved_ns)


def _words(lookup: LookUp) -> str:
    match lookup.outcome:
        case Outcome.HIT:
            return "it was not compiled: the cache had the program"
        case Outcome.MISS if lookup.differs:
            differ = "differs" if len(lookup.differs) == 1 else "differ"
            return f"its {' and '.join(lookup.differs)} {differ} from that of the nearest earlier key"
        case Outcome.MISS:
            return "the cache had nothing like it"
    where = f" ({lookup.where})" if lookup.where else ""
    return f"{lookup.reason}{where}"


def replay(asked: Sequence[Asked], note: str) -> ReplayRecord:
    """The mark of a compilation that the last of these look-ups found."""
    found = next((one.lookup for one in reversed(asked) if one.lookup.outcome is Outcome.HIT), None)
    if found is None:
        return ReplayRecord("", 0, 0.0, note)
    return ReplayRecord(found.key, found.saved_ns, found.saved_at_unix_s, note)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
