"""What a training step costs: aotviz as a backend of torch.compile beside torch's own, on models as people train them.

A step is forward, loss, backward, `optimizer.step()` and `zero_grad()`. "aotviz" is set against "inductor", and
"aotviz_eager" against "aot_eager", so that both sides run the same compiler: what differs is the graphs that it was
given, and what runs around them. Each side has a copy of the model and an optimizer of its own. A round takes a step
with each side, in random order, in CPU time of the whole process; rounds go on until the median of their ratios is
known to within half a percent, as far as the time for it goes.

Besides time, the memory of a step: the largest sum of living tensors' bytes, as torch's CPU allocator counts them.
"""

from __future__ import annotations

import copy
import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch

from .measure import interval, no_collections, ratio
from .results import Result, Row, result
from .step_models import MODELS

PAIRS = {"inductor": "aotviz", "aot_eager": "aotviz_eager"}  # torch's backend -> ours
NARROW = 0.005  # half the width of the interval that rounds aim at
FEWEST = 15  # rounds
Step = Callable[[], object]


class Trainer:
    """Training steps of a model under a backend. Ours is one of `torch.compile`'s, as any other."""

    def __init__(self, model: torch.nn.Module, batch: Mapping[str, Any], backend: str) -> None:
        self.batch = batch
        self.model = copy.deepcopy(model)
        self.compiled = torch.compile(self.model, backend=backend)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def __call__(self) -> None:
        results = self.compiled(**self.batch)
        results[0].backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def cpu_ns(step: Step) -> int:
    """CPU nanoseconds of the process for one step; what autograd's own threads do is in it."""
    began = time.process_time_ns()
    step()
    return time.process_time_ns() - began


def compared(steps: Mapping[str, Step], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Nanoseconds of each step, one figure a round, of at most `rounds` and about `seconds`."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    order, ends = random.Random(0), time.monotonic() + seconds
    with no_collections():
        for number in range(rounds):
            for name in order.sample(list(steps), len(steps)):
                times[name].append(cpu_ns(steps[name]))
            if number + 1 >= FEWEST and number % 5 == 4:
                low, high = interval([mine / other for mine, other in zip(times["ours"], times["torch"], strict=True)])
                if high - low <= 2 * NARROW or time.monotonic() > ends:
                    break
    return times


def peak_bytes(step: Step) -> int:
    """The most bytes that were allocated at one time in a step, beyond those from before it; of threads together."""
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = profile.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    now = most = 0
    for _, nbytes in changes:
        now += nbytes
        most = max(most, now)
    return most


def measure(name: str, theirs: str, rounds: int, seconds: float, layers: Mapping[str, int]) -> list[Row]:
    """A row for the time of the model's step, and one for its memory."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, batch = MODELS[name](**layers)
    steps = {"torch": Trainer(model, batch, theirs), "ours": Trainer(model, batch, PAIRS[theirs])}
    for step in steps.values():
        for _ in range(3):
            step()
    peaks = {side: peak_bytes(step) for side, step in steps.items()}
    times = compared(steps, rounds, seconds)
    ratios = [mine / other for mine, other in zip(times["ours"], times["torch"], strict=True)]
    case = f"{name}, {PAIRS[theirs]} / {theirs}"
    spent = {side: median(found) / 1e6 for side, found in times.items()}
    kept = {side: peak / 1e6 for side, peak in peaks.items()}
    return [
        Row(f"{case}: time", ratio(times["ours"], times["torch"]), 1.0, spent, "ms", interval(ratios)),
        Row(f"{case}: peak memory", peaks["ours"] / peaks["torch"], 1.0, kept, "MB"),
    ]


def run(
    rounds: int = 400, seconds: float = 20, layers: int | None = None, backends: Sequence[str] = tuple(PAIRS)
) -> Result:
    """`seconds` are of each pair; `layers` None leaves each model its own number; `backends` are torch's."""
    size = {} if layers is None else {"layers": layers}
    rows = [row for name in MODELS for theirs in backends for row in measure(name, theirs, rounds, seconds, size)]
    about = "one training step under torch.compile (forward, backward, AdamW, zero_grad): CPU time, peak memory"
    return result("step", about, "ours / torch", rows, {"rounds": rounds})
