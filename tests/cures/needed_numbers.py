"""Recompiles because a line needs the value of a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

import aotviz
from aotviz.explain.cures import guard_cures as cures
from aotviz.lowerings import run_graph
from tests.cures.programs import Calls, Effect, compiled, program


@program(
    "a loop from one number to another",
    cures.FIXED_NUMBER,
    "such as a slice in place of the loop",
    ("pytorch/pytorch#114293",),
)
def a_loop_over_a_range(cured: bool) -> object:
    def by_a_loop(x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        result = x[start]
        for i in range(start + 1, end):
            result = result + x[i]
        return result

    def by_a_slice(x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        return x[start:end].sum(0)

    step = compiled(by_a_slice if cured else by_a_loop)
    return [step(torch.ones(12, 2), start, start + 4) for start in (2, 3, 4, 5)]


@program("a recursion by a number", cures.FIXED_NUMBER, "or loop outside of the compiled function")
def a_recursion(cured: bool) -> object:
    def times(x: torch.Tensor, number: int) -> torch.Tensor:
        return x if number == 0 else times(x * 2, number - 1)

    once, found = compiled(lambda x: x * 2), []
    step = compiled(times)
    for number in (2, 3, 4, 5):
        x = torch.ones(3)
        for _ in range(number if cured else 0):
            x = once(x)
        found.append(x if cured else step(x, number))
    return found


@program(
    "a function of `math` of a number that varies",
    cures.NEEDED_NUMBER,
    "Make what is computed from it a tensor, once before the call",
)
def a_function_of_math(cured: bool) -> object:
    def scaled(x: torch.Tensor, rate: float) -> torch.Tensor:
        return x * math.exp(rate)

    step, found = compiled((lambda x, scale: x * scale) if cured else scaled), []
    for rate in (0.1, 0.2, 0.3, 0.4):
        found.append(step(torch.ones(3), torch.tensor(math.exp(rate)) if cured else rate))
    return found


@program("an index of NumPy", cures.NUMPY_NUMBER, "Pass `int(i)`")
def an_index_of_numpy(cured: bool) -> object:
    step = compiled(lambda x, i: x[i] * 2)
    return [step(torch.ones(9), int(i) if cured else i) for i in np.arange(2, 6)]


@program("functions that differ in the default of an argument", cures.DEFAULT_NUMBER, "Pass the value in the call")
def defaults(cured: bool) -> object:
    def scaled(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale

    def applied(x: torch.Tensor, *scale: torch.Tensor) -> torch.Tensor:
        return scaled(x, *scale)

    step, found = compiled(applied), []
    for scale in (2.0, 3.0, 4.0):
        if not cured:
            scaled.__defaults__ = (scale,)
        found.append(step(torch.ones(3), *([torch.tensor(scale)] if cured else [])))
    return found


def of_its_recording(calls: Calls, cured: bool) -> Effect:
    recording = calls(cured)
    assert isinstance(recording, aotviz.Recording)
    return Effect(len(recording), "compilations", recording)


@program(
    "a number that is passed to an aot_function",
    cures.CONSTANT_OF_FUNCTION,
    "Pass `torch.tensor(n)`",
    measure=of_its_recording,
)
def a_number_of_an_aot_function(cured: bool) -> object:
    times = aotviz.aot_function(lambda x, n: x * n, run_graph)
    for n in (2, 3, 4):
        times(torch.ones(3), torch.tensor(n) if cured else n)
    return times.recording


@program("a number that indexes a list", cures.INDEXED_BY_NUMBER, "Make a tensor of the list")
def an_index_of_a_list(cured: bool) -> object:
    rates: Any = torch.tensor([0.1, 0.2, 0.3, 0.4]) if cured else [0.1, 0.2, 0.3, 0.4]
    step = compiled(lambda x, epoch: x * rates[epoch])
    return [step(torch.ones(3), epoch) for epoch in range(4)]


class Positions(torch.nn.Module):
    """Keeps the rows that it was called with, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 3))
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows[self.count : self.count + 1] = x
        self.count += 1
        return self.rows[: self.count].sum(0)


@program("a position in a cache that bounds a slice", cures.BOUND_NUMBER, "allow_unspec_int_on_nn_module = True")
def a_position_in_a_cache(cured: bool) -> object:
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=cured):
        step = compiled(Positions())
        return [step(torch.ones(1, 3)) for _ in range(5)]
