"""Times that mean something on a machine that is shared and busy.

A wall clock there measures the neighbours, and an absolute figure from one machine says nothing about another. So
every contestant runs in the same process, in turns, and is timed in CPU seconds of its own thread; a round gives one
ratio, and the median over the rounds is the figure. Garbage is collected before each measurement.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from statistics import median

Call = Callable[[], object]


@contextmanager
def no_collections() -> Iterator[None]:
    """Without automatic garbage collection inside, and with explicit ones that pass over what is there already."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def cpu_ns(call: Call, repeats: int = 1) -> float:
    """CPU nanoseconds of this thread for one of `repeats` calls."""
    turns = range(repeats)
    began = time.thread_time_ns()
    for _ in turns:
        call()
    return (time.thread_time_ns() - began) / repeats


def in_turns(calls: Mapping[str, Call], rounds: int, repeats: int, collecting: bool) -> dict[str, list[float]]:
    """Nanoseconds a call of each contestant, one figure a round; every other round in the opposite order.

    With `collecting`, garbage collection goes on as usual, and is part of what is measured.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    with nullcontext() if collecting else no_collections():
        for number in range(rounds):
            for name in list(calls) if number % 2 == 0 else reversed(list(calls)):
                gc.collect()
                times[name].append(cpu_ns(calls[name], repeats))
    return times


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median over the rounds of ours / theirs.

    >>> ratio([1.0, 2.0, 30.0], [2.0, 4.0, 10.0])
    0.5
    """
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def interval(values: list[float]) -> tuple[float, float]:
    """Where the median of what `values` are drawn from lies, at 95 %: two of the values, by their order alone.

    >>> interval([float(n) for n in range(1, 12)])
    (2.0, 10.0)
    """
    ordered, count = sorted(values), len(values)
    beyond, cut, ways = 0.0, 0, 0.5**count  # chance that at most `cut` values lie on one side of the median
    while cut < count // 2 and beyond + ways <= 0.025:
        beyond, ways, cut = beyond + ways, ways * (count - cut) / (cut + 1), cut + 1
    return ordered[max(cut - 1, 0)], ordered[min(count - cut, count - 1)]
