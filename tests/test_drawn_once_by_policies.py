"""A policy and a memory budget together: what is recomputed in the backward has the random numbers of the forward.

Eager's gradient from the same seed has the numbers of its forward, so it tells whether ours had others.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch._functorch import config
from torch._inductor import config as inductor_config

import aotviz
from tests.test_drawn_once import DRAWS, EACH, assert_as_eager, program, run
from tests.test_policies import RULES, model, step

BUDGETS = [0.0, 0.5]
TABLES: list[dict[str, str]] = [
    {"*": "recompute"},
    {"aten.sin": "recompute"},
    {">= 1 B": "recompute"},
    {"aten.exp": "save", "aten.*": "recompute"},
    {"aten.cos": "save"},
]


def compiled(function: Any, rules: dict[str, str], otherwise: str, backend: str = "eager") -> Any:
    torch._dynamo.reset()
    partition_fn = aotviz.policy(rules, otherwise)
    return aotviz.compile(function, backend=backend, partition_fn=partition_fn, cache=False)


@pytest.mark.every(5)
@pytest.mark.parametrize("otherwise", ["default", "min-cut"])
@pytest.mark.parametrize("draw", EACH)
def test_a_gradient_has_the_numbers_of_its_forward(draw: str, otherwise: str) -> None:
    function, recomputed = program(DRAWS[draw]), 0
    budgets = BUDGETS if otherwise == "default" else BUDGETS[::-1]  # each table with each, by one of the partitions
    for rules, budget in zip(TABLES, itertools.cycle(budgets)):
        with config.patch(activation_memory_budget=budget):
            ours = compiled(function, rules, otherwise)
            assert_as_eager(function, ours)
            recomputed += len(ours.recording[0].recomputed)
    assert recomputed


def test_the_comparison_finds_a_draw_that_is_another_in_the_backward() -> None:
    """A dropout whose backward drops other elements than its forward."""

    class Redrawn(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * torch.bernoulli(torch.full_like(x, 0.5))

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * torch.bernoulli(torch.full_like(gradient, 0.5))

    wrong = program(Redrawn.apply)
    right = program(lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)))
    with pytest.raises(AssertionError):
        assert_as_eager(right, wrong)


@pytest.mark.every(8)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("otherwise", ["default", "min-cut"])
@pytest.mark.parametrize("name", RULES)
def test_the_gradients_of_a_model_have_its_dropouts(name: str, otherwise: str, budget: float) -> None:
    """Attention, residual and feed-forward dropout of two layers."""
    net = model()
    with config.patch(activation_memory_budget=budget):
        ours = compiled(net, RULES[name], otherwise)
        for mine, eagers in zip(step(ours, net), step(net, net), strict=True):
            assert torch.equal(mine, eagers)
    here = ours.recording[0]
    if name in ("an operator", "all", "each layer"):
        assert here.recomputed.name.str.contains("native_dropout").any()
        assert here.saved_tensors.why.str.contains("the random state before a node").any()


def test_the_budget_of_a_policy_is_that_of_its_min_cut_partitioner() -> None:
    """The default partitioner reads no budget."""
    saved: dict[str, list[int]] = {}
    for otherwise in ("default", "min-cut"):
        for budget in (1.0, 0.0):
            net = model()
            with config.patch(activation_memory_budget=budget):
                ours = compiled(net, {"layers.0.linear1": "save"}, otherwise)
                step(ours, net)
            saved.setdefault(otherwise, []).append(ours.recording[0].saved_tensors.held_bytes.sum())
    assert saved["default"][0] == saved["default"][1]
    assert saved["min-cut"][0] > saved["min-cut"][1]


@pytest.mark.parametrize("draw", ["dropout", "bernoulli_", "randn", "multinomial", "sdpa", "two"])
def test_with_inductor_it_has_them_too(draw: str) -> None:
    """Inductor draws eager's numbers if it is told to (`fallback_random`; torch cannot compile an index by `randperm`
    with it)."""
    function = program(DRAWS[draw])
    for rules, budget in itertools.product(TABLES[:3], BUDGETS):
        with config.patch(activation_memory_budget=budget), inductor_config.patch(fallback_random=True):
            ours = compiled(function, rules, "min-cut", backend="inductor")
            for mine, eagers in zip(run(ours), run(function), strict=True):
                torch.testing.assert_close(mine, eagers)
