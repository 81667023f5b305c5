"""What a watch costs: its share of what `torch.compile` takes, and what it adds to the calls of what is compiled.

The program is a training step of a GPT-2, compiled from scratch with and without a watch, in turns, in CPU time of the
compiling thread. A C++ compiler would only hide the share, so Inductor's kernels are built once beforehand and found
again; all else of a compilation is done anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import torch
import torch._dynamo
from torch._functorch import config as aot_config
from torch._inductor import config as inductor_config

from aotviz.frontends.demo import gpt2
from aotviz.live.watching import watch

from .measure import in_turns, ratio
from .results import Result, Row, result

LAYERS = 4
CALLS = 20_000
BACKENDS = ("aot_eager", "inductor")


def compiling(model: torch.nn.Module, batch: Any, backend: str, context: Callable[[], Any]) -> Callable[[], None]:
    """Compiles the model's training step anew, under a context."""

    def step() -> None:
        torch._dynamo.reset()
        with context():
            loss, _ = torch.compile(model, backend=backend)(*batch)
            loss.backward()
        model.zero_grad(set_to_none=True)

    return step


def calling(
    compiled: Callable[..., Any], args: tuple[Any, ...], context: AbstractContextManager[Any]
) -> Callable[[], None]:
    """Many calls of what is compiled already: so many that to begin and end a watch does not show."""

    def calls() -> None:
        with context:
            for _ in range(CALLS):
                compiled(*args)

    return calls


def run(rounds: int = 7, layers: int = LAYERS, backends: Sequence[str] = BACKENDS) -> Result:
    rows: list[Row] = []
    model, batch = gpt2(layers)
    logging.getLogger("torch.__trace").handlers.clear()  # torch's own takes itself off at the first record
    with aot_config.patch(enable_autograd_cache=False), inductor_config.patch(fx_graph_cache=False):
        for backend in backends:
            steps = {
                "plain": compiling(model, batch, backend, nullcontext),
                "watched": compiling(model, batch, backend, watch),
            }
            in_turns(steps, 1, 1, collecting=True)  # kernels, imports and caches that later rounds find warm
            rows.append(_row(f"compiling, {backend}", in_turns(steps, rounds, 1, collecting=True), 1.05, "ms", 1e6))
    torch._dynamo.reset()
    compiled, args = torch.compile(lambda x, y: x * y + 1, backend="eager"), (torch.ones(4), torch.ones(4))
    compiled(*args)
    turns = {"plain": calling(compiled, args, nullcontext()), "watched": calling(compiled, args, watch())}
    rows.append(_row(f"{CALLS:,} calls", in_turns(turns, rounds, 1, collecting=False), 1.02, "ms", 1e6))
    about = f"a training step of a {layers}-layer GPT-2 compiled by torch.compile, and calls, with and without a watch"
    return result("watching", about, "watched / plain", rows, {"rounds": rounds, "layers": layers})


def _row(case: str, times: dict[str, list[float]], target: float, unit: str, scale: float) -> Row:
    medians = {name: median(found) / scale for name, found in times.items()}
    return Row(case, ratio(times["watched"], times["plain"]), target, medians, unit)
