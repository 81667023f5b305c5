"""One check that a call of a compiled function did not pass, in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aotviz.explain.cures.registry import Advice
from aotviz.recording.guard_texts import with_article

SAID = ("None", "something", "a tensor", "a NumPy value")  # for what a value was, and not a class


@dataclass(frozen=True)
class GuardFailure:
    """One check that a call did not pass."""

    kind: str  # the kind of reason: "size", "dtype", "value", ...
    subject: str  # what it is about, as the user would write it, e.g. "self.steps"
    before: str  # what it was when the earlier program was compiled; "" if unknown
    after: str  # what it is now; "" if unknown
    words: str  # what happened, as the end of a sentence that begins with "because"
    fix: Advice  # what to do
    source: str = ""  # the expression that the guard checks, as torch writes it

    def with_after(self, value: str) -> GuardFailure:
        """The same failure, given the value of the new call."""
        if self.kind == "length" and value.isdecimal():
            before = "0" if self.before == "empty" else self.before
            name = self.subject.removeprefix("len(").removesuffix(")")
            words = f"`{name}` had length {before} and now has {value}"
            return replace(self, subject=f"len({name})", before=before, after=value, words=words)
        if self.after or not value or value == self.before:
            return self
        if self.kind == "key":
            words = f"a key of `{self.subject.rpartition('.keys()')[0]}` was {self.before} and is now {value}"
            return replace(self, after=value, words=words)
        if self.kind == "type":
            before, now = (self.before, value) if self.before in SAID else map(with_article, (self.before, value))
            words = f"`{self.subject}` was {before} and is now {now}"
            return replace(self, after=value, words=words)
        return replace(self, after=value, words=f"`{self.subject}` was {self.before} and is now {value}")
