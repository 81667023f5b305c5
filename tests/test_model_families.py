"""A training step of models that were not written for us, each through one door; docs/parity.md has the others."""

from __future__ import annotations

import pytest
import torch

import aotviz
import aotviz.frontends.backend
from tests.oracle.models import MORE
from tests.parity.sections.models import problem, step
from tests.tiers import slow

pytest.importorskip("transformers")

# These ask for the value of a tensor, or sort rows by expert in an operator whose shapes torch knows in bfloat16 only.
BY_DYNAMO = ("xlm", "qwen2_moe")


@pytest.mark.parametrize("name", [name if name in ("xlm", "cohere") else slow(name) for name in MORE])
def test_a_training_step_equals_eager(name):
    torch._dynamo.reset()

    def compiled(module):
        if name in BY_DYNAMO:
            return torch.compile(module, backend="aotviz_eager")
        return aotviz.compile(module, backend="eager")

    expected = step(name, lambda module: module, shallow=True)
    assert problem(expected, step(name, compiled, shallow=True)) == ""
