"""What Inductor's programs of real models need, as their code says, beside what the allocator says.

    python -m tests.sweeps.inductor_memory [name ...]

One line for each model of tests/oracle/models.py: a training step. Where Dynamo makes several graphs with gradients,
their plans are added up.
"""

from __future__ import annotations

import logging
import sys
from typing import NamedTuple

import torch

import aotviz
from tests.oracle.models import FAMILIES, MORE


class Found(NamedTuple):
    graphs: int  # that Dynamo made, with gradients, in the last step
    measured: int  # bytes at the peak, beside what was there before
    planned: int  # at the kernel that needs most, of all graphs
    scratch: int  # that this kernel allocates for itself
    unexplained: int
    operator_by_operator: int
    kernels: int  # that ran, of all graphs
    unexplained_of_a_kernel: int  # at most, of what is allocated after it


def found(name: str) -> Found:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, inputs = {**FAMILIES, **MORE}[name]()
    model.train()
    compiled = aotviz.compile(model, backend="inductor")

    def step() -> None:
        results = [one for one in torch.utils._pytree.tree_leaves(compiled(**inputs)) if isinstance(one, torch.Tensor)]
        next(one for one in results if one.requires_grad).sum().backward()

    for _ in range(2):
        step()
        model.zero_grad()
    measured = aotviz.measured_memory(step)
    programs = [one for one in compiled.recording if one.kind == "training"]
    largest = max(programs, key=lambda one: one.memory().peak.nbytes)
    plans = [one.inductor_memory() for one in programs]
    ran = len({str(plan.texts) for plan in plans})  # the first call may set a part of the config: the same code again
    rows = measured.kernels(*plans)
    at_peak = rows.loc[(rows.measured + rows.own).idxmax()]
    planned, scratch, peak = int(at_peak.planned + at_peak.others), int(at_peak.own), measured.peak.nbytes
    most = int(rows.unexplained.abs().max())
    unexplained, by_operator = peak - planned - scratch, largest.memory().peak.nbytes
    return Found(ran, peak, planned, scratch, unexplained, by_operator, len(rows), most)


def main(names: list[str]) -> None:
    logging.disable(logging.WARNING)
    for name in names or [*FAMILIES, *MORE]:
        try:
            one = found(name)
        except Exception as error:  # a model that needs what is not installed, for example
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:150]}", flush=True)
        else:
            print(f"{name}: {', '.join(f'{value:,} {field}' for field, value in one._asdict().items())}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
