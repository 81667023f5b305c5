"""Recompiles, and those with one cause."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from aotviz.explain.explanation import counted, listed, sentence, some_of
from aotviz.explain.misses import Miss, Reason

DEPTH = {  # others: 1
    "global state": 0,
    "backend": 0,
    "unknown": 0,
    "autograd graph": 0,
    "size": 2,
    "stride": 3,
    "symbolic": 4,
    "dropped": 5,
}
SYMBOLIC = " (symbolic from now on)"
CAPTURED = "backward, by Dynamo"  # as a log's reader names what Dynamo compiles of a captured backward
ANOTHER, OTHERS = "other guard", "other guards"
WORDS = re.compile(r"[a-z-]+(?: [a-z-]+)+")  # a subject that is no expression


@dataclass(frozen=True)
class Recompile:
    """A compilation of a function that already had programs."""

    place: int  # index of the compilation
    id: str  # of the compilation, in the recording
    function: str
    reasons: tuple[Reason, ...]  # one per earlier program, the newest first
    seconds: float
    outcome: str  # "compiled", "limit" (too many: ran in eager), "limit error", "eager" (refused) or "failed"
    limit: int  # the limit that was reached, 0 if unknown or none
    left_out: int = 0  # earlier programs that failed a guard like those of `reasons` on another value

    @cached_property
    def nearest(self) -> Reason:
        """The program that came nearest to fitting."""
        count = Counter(miss.value for reason in self.reasons for miss in reason.misses)

        def weight(reason: Reason) -> tuple[int, bool, int, int]:
            deepest = max(DEPTH.get(miss.failure.kind, 1) for miss in reason.misses)
            most = max(count[miss.value] for miss in reason.misses)
            return -reason.count, not reason.is_known, deepest, most

        return max(self.reasons, key=weight)  # the newest of equals

    @property
    def main(self) -> Miss:
        return self.nearest.misses[0]

    @property
    def also(self) -> tuple[Miss, ...]:
        """The other guards of the nearest program that the call failed."""
        return self.nearest.misses[1:]

    @property
    def why(self) -> str:
        """In a sentence."""
        main = self.main
        words = sentence(f"{quoted(self.function)} was compiled again because {main.failure.words}")
        if self.outcome == "limit":
            limit = f" of {self.limit}" if self.limit else ""
            words = sentence(
                f"{quoted(self.function)} reached the recompile limit{limit} and was not compiled again, although "
                f"{main.failure.words}: calls that fit none of its programs run in eager from now on"
            )
        elif self.outcome in ("failed", "limit error"):
            words += " This compilation failed."
        elif self.outcome == "eager":
            words += " aotviz refused the new program, so it runs in eager."
        if main.dynamic:
            named = "It" if " " in main.failure.subject else f"`{main.failure.subject}`"
            words += f" {named} is symbolic from now on, so other values need no new program."
        if self.also:
            told = [f"{miss.failure.words}{SYMBOLIC if miss.dynamic else ''}" for miss in self.also]
            words += f" {sentence(f'The call failed {counted(len(told), ANOTHER, OTHERS)}: {some_of(told)}')}"
        return words


@dataclass(frozen=True)
class Cause:
    """Recompiles of one function because of one value."""

    recompiles: tuple[Recompile, ...]

    @property
    def seconds(self) -> float:
        return sum(recompile.seconds for recompile in self.recompiles)

    @property
    def reached_limit(self) -> bool:
        return any(recompile.outcome == "limit" for recompile in self.recompiles)

    @property
    def failed(self) -> bool:
        """Whether a call got no program, and raised or ran in eager."""
        return any(recompile.outcome != "compiled" for recompile in self.recompiles)

    @property
    def first(self) -> Recompile:
        return self.recompiles[0]

    @property
    def subject(self) -> str:
        return self.first.main.failure.subject

    @property
    def subjects(self) -> tuple[str, ...]:
        """What the recompiles were for; several are sizes of one tensor."""
        found = tuple(dict.fromkeys(recompile.main.failure.subject for recompile in self.recompiles))
        return found if all(".shape[" in subject for subject in found) else (self.subject,)

    @property
    def named(self) -> str:
        """The subjects as the beginning of a sentence; some are words, such as "hooks of modules", and not code."""
        return listed([one if WORDS.fullmatch(one) else f"`{one}`" for one in self.subjects])


def quoted(function: str) -> str:
    if function == CAPTURED:
        return "the captured backward"
    return f"`{function}`" if function else "the function"
