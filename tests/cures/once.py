"""Recompiles that happen once: about most of them nothing is to be done."""

from __future__ import annotations

from typing import Any

import torch

from aotviz.explain.cures import guard_cures as cures
from tests.cures.programs import compiled, program, settled

STEPS: dict[str, Any] = {}  # of programs whose calls are made twice


@program(
    "a convolution, which chooses its algorithm by the batch size",
    cures.OPERATOR_RANGE,
    "each range of sizes needs one program, which is kept and reused",
    measure=settled,
)
def a_convolution_of_many_batches(cured: bool) -> object:
    convolved = STEPS.setdefault("convolution", compiled(torch.nn.Conv1d(2, 2, 3), dynamic=True))
    with torch.no_grad():
        return [convolved(torch.ones(rows, 2, 9)).shape for rows in (4, 9, 16, 20)]


@program("a number that bounds a slice", cures.COMPUTED_NUMBER, "Nothing has to be done", measure=settled)
def a_number_that_bounds_a_slice(cured: bool) -> object:
    step = STEPS.setdefault("slice", compiled(lambda x, start: x[start : start + 2] * 2))
    return [step(torch.arange(8), start) for start in (2, 3, 5)]


@program("a number that changes once under dynamic=False", cures.NUMBER, "pass `torch.tensor(scale)`")
def a_number_that_changes_once(cured: bool) -> object:
    step = compiled(lambda x, scale: x * scale, dynamic=False)
    return [step(torch.ones(2), torch.tensor(scale) if cured else scale) for scale in (2, 3)]


@program(
    "the momentum that an optimizer makes in its first step", cures.STATE_MADE, "Nothing is to be done", measure=settled
)
def a_momentum(cured: bool) -> object:
    if "momentum" not in STEPS:
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.5)
        STEPS["momentum"] = weight, compiled(optimizer.step)
    weight, step = STEPS["momentum"]
    for _ in range(3):
        weight.grad = torch.zeros(3)
        step()
    return weight.detach()


@program("programs that are forgotten in each epoch", cures.RESET, "Leave `torch.compiler.reset()`")
def a_reset_in_each_epoch(cured: bool) -> object:
    step, found = compiled(lambda x: x * 2), []
    for _ in range(3):
        if not cured:
            torch.compiler.reset()
        found.append(step(torch.ones(3)))
    return found


@program("a branch on a number of a tensor", cures.FLAG, "needs a program for each side", measure=settled)
def a_branch_on_an_item(cured: bool) -> object:
    def step(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        if n.item() > 2:
            return x * 2
        return x * 3

    stepped = STEPS.setdefault("item", compiled(step))
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        return [stepped(torch.ones(3), torch.tensor(number)) for number in (3, 1)]
