"""What a cure changed when it was tried (`Recording.try_cure`), in a few lines."""

from __future__ import annotations

from dataclasses import dataclass

from aotviz.explain.explanation import seconds


class CureNeedsEdit(ValueError):
    """A cure cannot be tried without an edit of the code, which the message names."""


@dataclass(frozen=True)
class Run:
    """The same calls, without the cure or with it."""

    compilations: int
    recompiles: int
    graph_breaks: int
    seconds: float  # that compiling took


@dataclass(frozen=True, repr=False)
class Trial:
    """The calls without a cure and with it. It prints itself."""

    cure: str  # the settings, as one writes them
    before: Run
    after: Run
    equal: bool | None  # whether the results were equal; None if the calls returned none
    cured: bool  # `explain` gives this advice no longer

    def __str__(self) -> str:
        before, after = self.before, self.after
        counts = {
            "graph breaks": (before.graph_breaks, after.graph_breaks),
            "compilations": (before.compilations, after.compilations),
            "recompiles": (before.recompiles, after.recompiles),
            "time to compile": (seconds(before.seconds), seconds(after.seconds)),
        }
        lines = [f"- {what}: {was} before, {now} after" for what, (was, now) in counts.items()]
        results = {True: "equal", False: "they differ", None: "the calls returned none"}[self.equal]
        left = (
            [] if self.cured else ["- `explain` still gives the same advice: this cure alone does not remove the cause"]
        )
        return "\n".join([f"With `{self.cure}`:", *lines, f"- results: {results}", *left])

    __repr__ = __str__
