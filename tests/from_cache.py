"""A stand-in for aotviz's cache, for tests of what a recording says of it: each compilation gets the answer that the
test wants. After a hit the program is compiled all the same, and the recording sees nothing of that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from aotviz import pipeline
from aotviz.frontends import compiling
from aotviz.ir.forms import BackwardRequest, Form, Request
from aotviz.ir.lookup import LookUp, Outcome
from aotviz.pipeline import Observer
from aotviz.runtime.lowered import Program

Answer = tuple[LookUp, bytes]  # the bytes are the compilation's recording, after a hit

HIT = LookUp(
    Outcome.HIT,
    key="a" * 32,
    ingredients={"program": "x.sin()", "torch": "2.13.0"},
    saved_ns=2_000_000_000,
    saved_at_unix_s=1_790_000_000.0,
)


class Unseen(Observer):
    """Sees nothing of a compilation, but its late work."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def late(self, request: BackwardRequest) -> Observer:
        return self._observer.late(request)

    def further(self) -> Observer:
        return self._observer.further()


@contextlib.contextmanager
def answering(answer: Callable[[Request], Answer], first: int = 0) -> Iterator[list[Observer]]:
    """Every compilation in this block asks a cache, whose answer is given. Yields the observers, in order.

    Before a hit, the `first` stages are seen.
    """
    real: Callable[[Form, Observer], Program] = pipeline.compile_request
    method = compiling.Pipeline.program
    seen: list[Observer] = []

    def compile_request(request: Any, observer: Observer) -> Program:
        seen.append(observer)
        lookup, recorded = answer(request)
        if lookup.outcome is not Outcome.HIT:
            observer.looked_up(lookup)
            return real(request, observer)
        pipeline.run(pipeline.prepare()[:first], request, observer)
        program = real(request, Unseen(observer))
        observer.replayed(request, program, recorded or None)
        observer.looked_up(lookup)
        return program

    def run(stages: Any) -> Program:
        return compile_request(stages.request, stages.observer)

    compiling.Pipeline.program = run  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        compiling.Pipeline.program = method  # type: ignore[method-assign]
