"""What capturing a whole backward costs and saves: `aotviz.compiled_autograd` beside torch's own, and beside eager.

    python -m benchmarks compiled_autograd

*Capture* is the first backward of a model, with the captured graph run as it is. A *replay* is a later backward; what
it spends beside the operators of its graph is its overhead, and both sides run the same operators. *Peak memory* is the
most that a backward adds to its process (what Python itself takes included), beside eager's. A *step* is forward,
backward, AdamW and `zero_grad`, on Inductor, with the whole backward captured, beside the same step with the forward
compiled alone.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from statistics import median
from typing import Any

import torch
from torch import nn
from torch._dynamo import compiled_autograd as torchs
from torch._dynamo.backends.common import aot_autograd

import aotviz

from .measure import interval, ratio
from .results import Result, Row, result
from .step import compared
from .step_models import MODELS

Around = Callable[[], AbstractContextManager[Any]]  # of a backward
LAYERS, STEP_LAYERS = 4, 12
BLOCKS = 2  # of replays of one side


class Loss(nn.Module):
    """A model and its loss, returned as the models of `step_models` return it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.model(x).square().mean(),)


def many_parameters(layers: int) -> tuple[nn.Module, dict[str, Any]]:
    """A chain of small linear layers: little work for each autograd node."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(12 * layers)))

    return Loss(model), {"x": torch.randn(4, 8)}


CASES = {"GPT-2": MODELS["GPT-2"], "a chain of linear layers": many_parameters}


class Clock:
    """A compiler that runs graphs as they are, and adds up their CPU time."""

    def __init__(self) -> None:
        self.spent_ns = 0

    def __call__(self, graph_module: Any, _inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            began = time.thread_time_ns()
            found = graph_module(*args)
            self.spent_ns += time.thread_time_ns() - began
            return found

        return run


def ours(backend: Any) -> Around:
    return lambda: aotviz.compiled_autograd(backend=backend)


def theirs(compiler: Any) -> Around:
    return lambda: torchs._enable(compiler)


def as_it_is(graph_module: Any, _inputs: Any = None) -> Any:
    return graph_module


def reset() -> None:
    torch._dynamo.reset()
    torchs.reset()
    aotviz.compiled_autograd.reset()


class Backward:
    """Backwards of a model whose forward is eager."""

    def __init__(self, model: nn.Module, batch: Mapping[str, Any], around: Around) -> None:
        self._model, self._batch, self._around = model, batch, around

    def cpu_ns(self) -> int:
        """CPU nanoseconds of this thread for one backward. Gradients are dropped after it."""
        loss = self._model(**self._batch)[0]
        began = time.thread_time_ns()
        with self._around():
            loss.backward()
        spent = time.thread_time_ns() - began
        self._model.zero_grad()
        return spent


def captures(name: str, layers: int, rounds: int) -> Row:
    """The first backward, with nothing compiled."""
    model, batch = CASES[name](layers)
    sides = {"torch": theirs(as_it_is), "ours": ours(as_it_is)}
    times: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, around in sides.items():
            reset()
            spent = Backward(model, batch, around).cpu_ns()
            if number:  # the first imports and fills caches
                times[side].append(spent)
    medians = {side: median(found) / 1e6 for side, found in times.items()}
    return Row(f"{name}: capture", ratio(times["ours"], times["torch"]), 0.8, medians, "ms")


def replays(name: str, layers: int, rounds: int) -> Row:
    """A later backward, without the time of the operators, which is the same on both sides."""
    model, batch = CASES[name](layers)
    clock = Clock()
    compiler = torch.compile(backend=aot_autograd(fw_compiler=as_it_is), dynamic=False)
    sides = {"torch": Backward(model, batch, theirs(compiler)), "ours": Backward(model, batch, ours(clock))}
    times: dict[str, list[float]] = {side: [] for side in sides}
    graphs: list[float] = []
    for _ in range(BLOCKS):
        for side, backward in sides.items():
            reset()  # C++ would find the other's captures
            for _ in range(3):
                backward.cpu_ns()
            for _ in range(rounds // BLOCKS):
                clock.spent_ns = 0
                times[side].append(backward.cpu_ns())
                if side == "ours":
                    graphs.append(clock.spent_ns)
    operators = median(graphs)
    beside = {side: [one - operators for one in found] for side, found in times.items()}
    medians = {side: median(found) / 1e3 for side, found in beside.items()} | {"operators": operators / 1e3}
    return Row(f"{name}: a replay, beside its graph", medians["ours"] / medians["torch"], 0.8, medians, "µs")


def transformer(layers: int, batch: int) -> tuple[nn.Module, dict[str, Any]]:
    """Wide enough that its gradients and activations outweigh all else in a process."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    return Loss(encoder), {"x": torch.randn(batch, 128, 512)}


def resident_bytes(what: str) -> int:
    """Of this process, as Linux counts: "VmRSS", what is in memory now, or "VmHWM", the most since `forget_peak`."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(f"{what}:"))


def forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def backward_peak(side: str, layers: int, batch: int, accumulates: bool) -> int:
    """The most that the third backward of this process adds to its memory. `side` is "eager" or a backend of ours."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    around: Around = contextlib.nullcontext if side == "eager" else ours(side.removeprefix("ours "))
    model, given = transformer(layers, batch)
    most = 0
    for _ in range(3):  # the first one compiles
        if not accumulates:
            model.zero_grad()
        loss = model(**given)[0]
        gc.collect()
        forget_peak()
        before = resident_bytes("VmRSS")
        with around():
            loss.backward()
        most = resident_bytes("VmHWM") - before
    return most


def memory(layers: int, batch: int, backend: str, accumulates: bool) -> Row:
    """Peak memory of a backward, each side in a process of its own, whose freed memory goes back to the system."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    found = {}
    for side in ("eager", f"ours {backend}"):
        arguments = f"{side!r}, {layers}, {batch}, {accumulates}"
        call = f"from benchmarks import compiled_autograd as b; print(b.backward_peak({arguments}))"
        command = [sys.executable, "-W", "ignore", "-c", call]
        told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        found[side.partition(" ")[0]] = int(told.split()[-1]) / 1e6
    case = f"peak memory of a backward{', adding to gradients' if accumulates else ''}, {backend}"
    return Row(case, found["ours"] / found["eager"], 1.01, found, "MB")


class Step:
    """Training steps of a model on Inductor. `around` is about the backward."""

    def __init__(self, compiles: Callable[[nn.Module], Any], layers: int, around: Around) -> None:
        torch.manual_seed(0)
        model, self._batch = MODELS["GPT-2"](layers)
        self._compiled, self._around = compiles(model), around
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def __call__(self) -> None:
        loss = self._compiled(**self._batch)[0]
        with self._around():
            loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()


def steps(layers: int, backend: str, rounds: int, seconds: float) -> list[Row]:
    """A whole step with the backward captured, beside one with the forward compiled alone; ours, then torch's."""
    theirs_name = "inductor" if backend == "inductor" else "aot_eager"
    sides = {
        "aotviz": (lambda model: aotviz.compile(model, backend=backend), ours(backend)),
        "torch": (
            lambda model: torch.compile(model, backend=theirs_name),
            theirs(torch.compile(backend=theirs_name, dynamic=False)),
        ),
    }
    rows = []
    for side, (compiles, around) in sides.items():
        reset()
        both = {"torch": Step(compiles, layers, contextlib.nullcontext), "ours": Step(compiles, layers, around)}
        for step in both.values():
            for _ in range(3):
                step()
        times = compared(both, rounds, seconds)
        ratios = [mine / other for mine, other in zip(times["ours"], times["torch"], strict=True)]
        spent = {"alone": median(times["torch"]) / 1e6, "whole": median(times["ours"]) / 1e6}
        case = f"GPT-2, {layers} layers, {backend}: step with {side}'s, beside its forward alone"
        rows.append(Row(case, ratio(times["ours"], times["torch"]), None, spent, "ms", interval(ratios)))
    return rows


def run(
    rounds: int = 15,
    cases: Sequence[str] = tuple(CASES),
    layers: int = LAYERS,
    batch: int = 64,  # of the backward whose memory is measured
    step_layers: int = STEP_LAYERS,
    backend: str = "inductor",
    seconds: float = 60,
) -> Result:
    rows = [captures(name, layers, rounds) for name in cases]
    rows += [replays(name, layers, 4 * rounds) for name in cases]
    for lowering in dict.fromkeys(("eager", backend)):
        rows += [memory(layers, batch, lowering, accumulates) for accumulates in (False, True)]
    rows += steps(step_layers, backend, 20 * rounds, seconds)
    about = "a whole backward, captured: its capture, its replays, its memory, and steps with it"
    settings = {"rounds": rounds, "layers": layers, "step_layers": step_layers}
    return result("compiled_autograd", about, "ours / torch or eager", rows, settings)
