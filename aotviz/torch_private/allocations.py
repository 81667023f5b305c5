"""What the profiler of torch saw: which bytes were allocated and freed, which operators ran, and when each line of
Inductor's code began, which a tracer of Python marks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function


class Allocation(NamedTuple):
    """Bytes that were allocated, or freed (negative), at a time."""

    at_ns: int
    nbytes: int


class Ran(NamedTuple):
    """An operator's call."""

    name: str
    begin_ns: int
    end_ns: int
    thread: int


class Line(NamedTuple):
    """A line of Inductor's code that begins; 0 when its function returns."""

    at_ns: int
    file: str
    line: int
    call: int  # the number of the function's call


class During(NamedTuple):
    """What happened while something was called, each in the order of time."""

    result: Any
    allocations: list[Allocation]
    operators: list[Ran]
    lines: list[Line]


_MARK = "aotviz: a line of Inductor's code"
_FUNCTION = re.compile(r"call|partition_\d+")  # that calls kernels, in a file that Inductor wrote


def during(call: Callable[[], Any], device: torch.device) -> During:
    """Call it, and listen: to the allocations on a device, to the operators, and to Inductor's lines in this thread."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities, profile_memory=True) as profiler, _lines_marked() as marked:
        result = call()
    allocations: list[Allocation] = []
    operators: list[Ran] = []
    times: list[int] = []
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            if event.device_type().name == device.type.upper() and device.index in (None, event.device_index()):
                allocations.append(Allocation(event.start_ns(), event.nbytes()))
        elif event.name() == _MARK:
            times.append(event.start_ns())
        elif "::" in event.name() and not event.name().startswith(("autograd::", "torch::")):
            begin = event.start_ns()
            operators.append(Ran(event.name(), begin, begin + event.duration_ns(), event.start_thread_id()))
    lines = [Line(at_ns, *one) for at_ns, one in zip(sorted(times), marked, strict=False)]
    return During(result, sorted(allocations), sorted(operators, key=lambda one: one.begin_ns), lines)


@contextmanager
def _lines_marked() -> Iterator[list[tuple[str, int, int]]]:
    """Lets each line of Inductor's code leave a mark in the profile. The list has the file, line and call of each."""
    marked: list[tuple[str, int, int]] = []
    calls = 0

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal calls
        code = frame.f_code
        if not _FUNCTION.fullmatch(code.co_name) or "extern_kernels" not in frame.f_globals:
            return None
        calls += 1
        number = calls

        def begin(frame: FrameType, event: str, _: Any) -> Any:
            if event in ("line", "return"):
                with record_function(_MARK):
                    marked.append((code.co_filename, frame.f_lineno if event == "line" else 0, number))
            return begin

        return begin

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield marked
    finally:
        sys.settrace(before)
