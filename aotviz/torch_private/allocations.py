"""What the profiler of torch saw: which bytes were allocated and freed, and which operators ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

T = TypeVar("T")


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


class _DeviceType(Protocol):
    @property
    def name(self) -> str: ...


class _Event(Protocol):
    """What is read of an event of the profiler."""

    def name(self) -> str: ...
    def nbytes(self) -> int: ...
    def start_ns(self) -> int: ...
    def duration_ns(self) -> int: ...
    def start_thread_id(self) -> int: ...
    def device_index(self) -> int: ...
    def device_type(self) -> _DeviceType: ...


def during(call: Callable[[], T], device: torch.device) -> tuple[T, list[Allocation], list[Ran]]:
    """Call it. Returns its result, and the allocations on a device and the operators, each in the order of time."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities, profile_memory=True) as profiler:
        result = call()
    allocations: list[Allocation] = []
    operators: list[Ran] = []
    events: list[_Event] = profiler.profiler.kineto_results.events()
    for event in events:
        if event.name() == "[memory]":
            if event.device_type().name == device.type.upper() and device.index in (None, event.device_index()):
                allocations.append(Allocation(event.start_ns(), event.nbytes()))
        elif "::" in event.name() and not event.name().startswith(("autograd::", "torch::")):
            begin = event.start_ns()
            operators.append(Ran(event.name(), begin, begin + event.duration_ns(), event.start_thread_id()))
    return result, sorted(allocations), sorted(operators, key=lambda one: one.begin_ns)
