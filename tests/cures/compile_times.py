"""Compilations that take long, although nothing is wrong with them."""

from __future__ import annotations

import torch

from aotviz.explain.cures import time_cures as cures
from tests.cures.programs import Calls, Effect, compiled, program, watched


def operators(calls: Calls, cured: bool) -> Effect:
    recording, result = watched(calls, cured)
    return Effect(int(recording.compile_time().operators.sum()), "operators", recording, result)


@program(
    "a loop that is unrolled",
    cures.UNROLLED,
    "Compile the body of the loop as a function of its own",
    ("pytorch/pytorch#111441",),
    operators,
)
def a_loop(cured: bool) -> object:
    def body(x: torch.Tensor) -> torch.Tensor:
        return x - 0.1 * torch.sin(x)

    def loop(x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            x = x - 0.1 * torch.sin(x)
        return x

    x = torch.ones(3)
    if not cured:
        return compiled(loop)(x)
    step = compiled(body)
    for _ in range(100):
        x = step(x)
    return x
