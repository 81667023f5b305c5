"""What newer releases of torch have, by aotviz's doors; on older ones there is nothing to test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import aotviz
from aotviz.lowerings import run_graph

pytestmark = pytest.mark.usefixtures("clean_dynamo")
region_budget = getattr(torch.autograd.graph, "region_activation_memory_budget", None)
needs_budgets = pytest.mark.skipif(region_budget is None, reason="this torch has no budgets of regions")
Function = Callable[..., torch.Tensor]


def chained(x: torch.Tensor, w: torch.Tensor, budget: float | None) -> torch.Tensor:
    with contextlib.nullcontext() if budget is None else region_budget(budget):  # type: ignore[misc]
        for _ in range(4):
            x = (x @ w).sin().exp()
        return x.sum()


def trained(fn: Function, budget: float | None) -> tuple[int, list[torch.Tensor]]:
    """How many tensors a forward saves, and its gradients."""
    torch.manual_seed(0)
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    saved: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = fn(x, w, budget)
    result.backward()
    return len(saved), [one.grad for one in (x, w) if one.grad is not None]


@needs_budgets
@pytest.mark.parametrize("budget", [0.0, 1.0])
def test_a_budget_of_a_region_saves_what_torchs_own_saves(budget: float) -> None:
    theirs, expected = trained(torch.compile(chained, backend="aot_eager", fullgraph=True), budget)
    torch._dynamo.reset()
    ours, found = trained(torch.compile(chained, backend="aotviz_eager", fullgraph=True), budget)
    assert ours == theirs
    torch.testing.assert_close(found, expected)


@needs_budgets
def test_a_program_of_another_budget_is_another_entry_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path))

    def saved(budget: float | None) -> int:
        torch._dynamo.reset()
        return trained(aotviz.compile(chained, backend="eager"), budget)[0]

    much, little = saved(1.0), saved(0.0)
    assert little < much == saved(1.0) == saved(None)
    assert saved(0.0) == little


@pytest.mark.parametrize("which", [0, 2])
@pytest.mark.parametrize("by", ["aot_function", "torch.compile"])
def test_one_of_several_branches_is_run_and_differentiated(by: str, which: int) -> None:
    switch = pytest.importorskip("torch._higher_order_ops.switch").switch

    def branched(index: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        return switch(index, (lambda x, w: (x * w).sin(), lambda x, w: (x + w).cos(), lambda x, w: x @ w), (x, w))

    def gradients(fn: Function) -> list[torch.Tensor | None]:
        torch.manual_seed(0)
        x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
        fn(torch.tensor(which), x, w).sum().backward()
        return [x.grad, w.grad]

    compiled = (
        aotviz.aot_function(branched, run_graph, run_graph)
        if by == "aot_function"
        else torch.compile(branched, backend="aotviz_eager", fullgraph=True)
    )
    torch.testing.assert_close(gradients(compiled), gradients(branched))
