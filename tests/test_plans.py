"""`aotviz.plans`: what each way to cut a function would cost, and what it did cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.frontends import plans as plans_module
from aotviz.recording.plans import Measured, Plans


def blocks(dropout: float = 0.0) -> nn.Module:
    made = [nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=dropout) for _ in range(2)]
    return nn.Sequential(*made)


def test_each_plan_that_runs_needs_what_was_planned_to_the_byte_after_each_node() -> None:
    """With dropout and attention: what is recomputed draws from a state that is saved."""
    found = aotviz.plans(blocks(0.1), torch.randn(4, 16, 32), budgets=(1, 0.5, 0), measure=True)
    assert [plan.measured.differences for plan in found.plans if plan.measured] == [()] * 4
    table = found.table
    assert table.measured_peak.tolist() == table.peak.tolist()
    assert (table.measured_ms > 0).all()
    assert table.recomputed.max() > table.recomputed.min() == 0


def test_nothing_of_the_function_runs_unless_it_is_measured() -> None:
    ran: list[str] = []

    @torch.library.custom_op("aotviz_test::told", mutates_args=())
    def told(x: torch.Tensor) -> torch.Tensor:
        ran.append("forward")
        return x.clone()

    told.register_fake(torch.empty_like)
    told.register_autograd(lambda ctx, grad: grad)

    x = torch.ones(3, requires_grad=True)
    found = aotviz.plans(lambda x: told(x.sin()).cos(), x)
    assert not ran
    assert "measured_ms" not in found.table.columns
    aotviz.plans(lambda x: told(x.sin()).cos(), x, partitioners=["default"], measure=True)
    assert ran


def test_a_run_leaves_buffers_inputs_gradients_and_random_states_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    x = torch.randn(8, 4, requires_grad=True)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    aotviz.plans(model, x, measure=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert x.grad is None
    assert all(one.grad is None for one in model.parameters())
    for name, one in model.state_dict().items():
        assert torch.equal(one, before[name]), name


def test_inputs_by_keyword_and_a_partitioner_of_the_users() -> None:
    def mine(joint: Any, inputs: Any, **others: Any) -> Any:
        return torch._functorch.partitioners.default_partition(joint, inputs, **others)

    def f(x: torch.Tensor, *, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).tanh().exp()

    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    table = aotviz.plans(f, x, w=w, partitioners=[mine, "default"]).table
    assert table.partitioner.tolist() == ["mine", "default"]
    assert table.peak[0] == table.peak[1]


def test_an_estimate_that_the_run_refutes_is_told() -> None:
    """The sentence, with times that are given: how long a step takes here is not for a test to say."""
    found = aotviz.plans(blocks(), torch.randn(4, 16, 32), budgets=(1, 0))
    fast, *_, slow = sorted(found.plans, key=lambda plan: plan.estimated_ms)

    measured = [
        replace(fast, measured=Measured(3.0, 1, 2, ())),
        replace(slow, measured=Measured(1.0, 1, 2, ("forward mm (aten.mm.default): planned 4 …",))),
    ]
    first, second = Plans("f", measured).table.wrong
    assert first.startswith("the time: estimated ")
    assert first.endswith(f" % of {slow.name}, measured 300 %")
    assert second == "the peak: forward mm (aten.mm.default): planned 4 …"


def test_what_has_no_gradient_and_what_is_no_single_graph_is_refused_by_name() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="<lambda> returns nothing that can be differentiated"):
        aotviz.plans(lambda x: x.sin(), torch.ones(3))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break") as broken:
        aotviz.plans(breaks, x)
    assert broken.value.__notes__[-1].startswith("aotviz.plans takes a function that is one graph.")
    with pytest.raises(ValueError, match="there is no partitioner 'best'; there are default"):
        aotviz.plans(torch.sin, x, partitioners=["best"])
    with pytest.raises(ValueError, match="between 0 and 1, not 2"):
        aotviz.plans(torch.sin, x, budgets=[2])


def test_the_speed_of_a_device_is_measured_once() -> None:
    plans_module._measured_speed.cache_clear()
    speed = plans_module._measured_speed("cpu")
    assert min(speed) > 0
    assert plans_module._measured_speed("cpu") is speed
