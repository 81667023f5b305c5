"""What a cure changed when it was tried (`Recording.try_cure`), in a few lines."""

from __future__ import annotations

from dataclasses import dataclass

from aotviz.explain.explanation import counted, seconds


class CureNeedsEdit(ValueError):
    """A cure cannot be tried without an edit of the code, which the message names."""


class CallsNeeded(ValueError):
    """The calls cannot be repeated from what was recorded. The message says why, and what to pass."""

    def __init__(self, name: str, why: str) -> None:
        called = f"`{name}` was not called again: " if name else "nothing was called again: "
        super().__init__(f"{called}{why}. Pass the calls: `recording.try_cure(point, lambda: step(batch))`")


@dataclass(frozen=True)
class Run:
    """The same calls, without the cure or with it."""

    compilations: int
    recompiles: int
    graph_breaks: int
    seconds: float  # that compiling took
    error: str = ""  # the class of Dynamo's error that ended it


@dataclass(frozen=True, repr=False)
class Trial:
    """The calls without a cure and with it. It prints itself."""

    cure: str  # the settings, as one writes them
    before: Run
    after: Run
    equal: bool | None  # whether the results were equal; None if the calls returned none
    cured: bool  # `explain` gives this advice no longer
    made: int = 0  # how many calls were repeated with made inputs; 0 if the calls were passed

    def __str__(self) -> str:
        before, after = self.before, self.after
        counts = {
            "graph breaks": (before.graph_breaks, after.graph_breaks),
            "compilations": (before.compilations, after.compilations),
            "recompiles": (before.recompiles, after.recompiles),
            "time to compile": (seconds(before.seconds), seconds(after.seconds)),
        }
        if before.error or after.error:
            counts = {"error": (before.error or "none", after.error or "none"), **counts}
        lines = [f"- {what}: {was} before, {now} after" for what, (was, now) in counts.items()]
        results = {True: "equal", False: "they differ", None: "the calls returned none"}[self.equal]
        left = (
            [] if self.cured else ["- `explain` still gives the same advice: this cure alone does not remove the cause"]
        )
        made = [f"- {counted(self.made, 'call')} repeated, with inputs of the recorded shapes and random values"]
        head = f"With `{self.cure}`:"
        return "\n".join([head, *lines, f"- results: {results}", *(made if self.made else []), *left])

    __repr__ = __str__
