"""Programs that prove the advice of `explain`: each has a fault, and with the cure applied no longer has it.

A file for each area registers its programs with `program`. Its function is called with False to show the fault, and
with True to follow the advice; what it returns must be equal. `test_cures.py` runs all of them, `docs/write_cures.py`
writes what they measure into docs/cures.md. A cure without a program fails a test.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

import aotviz
from aotviz.explain import answers
from aotviz.explain.cures.registry import Advice, Cure
from aotviz.reading.recording import Recording

Calls = Callable[[bool], object]


@dataclass(frozen=True)
class Effect:
    """What a program did."""

    count: int
    unit: str  # "compilations", "graph breaks", "errors", ...
    recording: Recording
    result: object = None


Measure = Callable[[Calls, bool], Effect]


@dataclass(frozen=True)
class Program:
    fault: str  # in words
    cure: Cure
    says: str  # the part of the advice that the program follows
    calls: Calls
    measure: Measure
    first: bool  # the first advice of `explain` is this one
    reports: tuple[str, ...]  # public issues that show this fault: "pytorch/pytorch#12"

    @property
    def name(self) -> str:
        return self.calls.__name__

    def advice(self, recording: Recording) -> Advice | None:
        """The advice of the first point that gives one, and that is not about what the fault only leads to."""
        if self.first:
            return next((point.fix for point in recording.explain().points if point.fix), None)
        points = [point for section in answers.sections(answers.facts_of(recording)) for point in section.points]
        points += recording.explain().points  # what ranks do apart is told there with its cause
        said = [*(point.fix for point in points), *recording.cache_misses().fix, *recording.rank_differences().fix]
        return next((fix for fix in said if fix and self.cure in fix.cures), None)


PROGRAMS: list[Program] = []


def watched(calls: Calls, cured: bool) -> tuple[Recording, object]:
    """What torch.compile did, and what the calls returned or raised."""
    torch._dynamo.reset()
    result: object = None
    watch = aotviz.watch()
    try:
        with watch:
            result = calls(cured)
    except Exception as error:  # some faults are errors
        result = error
    return watch.recording, result


def compilations(calls: Calls, cured: bool) -> Effect:
    recording, result = watched(calls, cured)
    return Effect(len(recording), "compilations", recording, result)


def graph_breaks(calls: Calls, cured: bool) -> Effect:
    recording, result = watched(calls, cured)
    return Effect(len(recording.graph_breaks), "graph breaks", recording, result)


def errors(calls: Calls, cured: bool) -> Effect:
    recording, result = watched(calls, cured)
    return Effect(int(isinstance(result, Exception)), "errors", recording)


def settled(calls: Calls, cured: bool) -> Effect:
    """For a fault about which nothing is to be done: with the "cure", the same calls are made a second time."""
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        calls(False)
    if cured:
        with aotviz.watch() as recording:
            calls(False)
    return Effect(len(recording), "compilations", recording)


def program(
    fault: str,
    cure: Cure,
    says: str = "",
    reports: tuple[str, ...] = (),
    measure: Measure = compilations,
    first: bool = True,
) -> Callable[[Calls], Calls]:
    def register(calls: Calls) -> Calls:
        PROGRAMS.append(Program(fault, cure, says, calls, measure, first, reports))
        return calls

    return register


def compiled(fn: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(fn, **{"backend": "eager"} | options)


def under(manager: Any, active: bool) -> Any:
    return manager if active else nullcontext()
