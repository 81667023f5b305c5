"""Compiled functions whose results are not eager's, though nothing failed while they were compiled.

The program compares with eager, or checks what it computed, as a job's test would; the error ends the watch.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.config
from torch import nn

from aotviz.explain.cures import result_cures as cures
from tests.cures.programs import compiled, errors, program


def dropped(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(x, 0.5) + 1


@program(
    "random numbers that are compared with eager's",
    cures.RANDOM,
    "`torch._inductor.config.fallback_random = True`",
    ("pytorch/pytorch#113169", "pytorch/pytorch#118735"),
    errors,
)
def random_numbers_compared(cured: bool) -> None:
    with torch._inductor.config.patch(fallback_random=cured):
        results = []
        for function in (dropped, torch.compile(dropped)):
            torch.manual_seed(7)
            results.append(function(torch.ones(64)))
        assert torch.equal(*results), "not the same as in eager"


def mixed(x: torch.Tensor) -> torch.Tensor:
    return ((x * 1.7 + x) * 0.3 - x).tanh()


@program(
    "roundings that are compared with eager's",
    cures.PRECISION,
    "`torch._inductor.config.emulate_precision_casts = True`",
    ("pytorch/pytorch#168186", "pytorch/pytorch#173307"),
    errors,
)
def roundings_compared(cured: bool) -> None:
    x = torch.linspace(-3, 3, 512, dtype=torch.bfloat16)
    with torch._inductor.config.patch(emulate_precision_casts=cured):
        assert torch.equal(torch.compile(mixed)(x), mixed(x)), "not the same as in eager"


def update(average: torch.Tensor, value: torch.Tensor) -> None:
    average.mul_(0.9).add_(value, alpha=0.1)


def operator(name: str, *writes: str) -> Any:
    made = torch.library.custom_op(f"cures::{name}", update, mutates_args=writes)
    made.register_fake(lambda average, value: None)
    return made


UNDECLARED, DECLARED = operator("undeclared"), operator("declared", "average")


@program(
    "a custom operator that writes what it does not declare",
    cures.UNDECLARED,
    "`mutates_args={'average'}`",
    ("pytorch/pytorch#187319",),
    errors,
)
def a_write_that_is_not_declared(cured: bool) -> None:
    written = DECLARED if cured else UNDECLARED

    def step(x: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
        written(average, x * 2)
        return x.sum()

    average = torch.zeros(3)
    compiled(step, backend="aot_eager")(torch.ones(3), average)
    assert average.sum() > 0, "the average is still zero"


@program(
    "a checkpoint of a compiled module",
    cures.ORIG_MOD,
    "Save and load the state of the module itself",
    ("pytorch/pytorch#101107", "karpathy/nanoGPT#325"),
    errors,
)
def a_checkpoint(cured: bool) -> None:
    module = nn.Linear(3, 3)
    model = compiled(module)
    model(torch.ones(3))
    nn.Linear(3, 3).load_state_dict((module if cured else model).state_dict())
