"""The inputs of a captured backward lead to the user's variables, and to the autograd nodes that read them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import aotviz
from aotviz.reading.recording import Recording


@pytest.fixture(autouse=True)
def no_captures():
    aotviz.compiled_autograd.reset()
    yield
    aotviz.compiled_autograd.reset()


def captured(loss: torch.Tensor) -> Recording:
    with aotviz.compiled_autograd(backend="eager") as recording:
        loss.backward()
    return recording


def frees(whole) -> dict[str, tuple[str, ...]]:
    return {f"{row.node} {row.subject}".strip(): row.frees for row in whole.visits.itertuples()}


def test_what_is_kept_is_called_after_the_node_that_reads_it_and_a_gradient_after_its_leaf():
    linear, t, x = nn.Linear(3, 5), nn.Parameter(torch.ones(1)), torch.randn(2, 3)
    for _ in range(2):
        recording = captured((linear(x).tanh() * t).sum())
    *_, whole, part = recording
    assert frees(whole) == {
        "GraphRoot": ("graph_root_saved_0",),
        "SumBackward0": (),
        "MulBackward0": ("mul_backward0_saved_0",),
        "AccumulateGrad t": ("t",),
        "TanhBackward0": ("tanh_backward0_saved_0",),
        "AddmmBackward0": ("x",),
        "AccumulateGrad bias": ("bias",),
        "TBackward0": (),
        "AccumulateGrad weight": ("weight",),
    }
    shapes = dict(zip(part.inputs["name"], part.inputs["shape"], strict=True))
    assert shapes["tanh_backward0_saved_0"] == (2, 5)
    assert [shapes[name] for name in ("t_grad", "bias_grad", "weight_grad")] == [(1,), (5,), (5, 3)]


def test_names_that_two_nodes_would_give_are_numbered():
    x = torch.randn(3, requires_grad=True)
    *_, part = captured(x.sin().exp().sin().exp().sum())
    names = list(part.inputs["name"])
    assert [name for name in names if "exp" in name] == ["exp_backward0_saved_0", "exp_backward0_saved_1"]
    assert all(map(str.isidentifier, names))


def test_a_size_is_called_after_the_node_that_reads_it():
    for rows in (2, 3):
        w = torch.randn(rows, requires_grad=True)
        *_, whole, _ = captured((w.sin() * 2).sum())
    assert "sum_backward0_size_0 = sizes[0]" in whole.data.stages[-1].code["replay"]


def test_a_leaf_that_no_variable_reaches_has_a_name_too():
    def loss():
        return (nn.Parameter(torch.ones(3)) * 2).sum()

    whole, *_ = captured(loss())
    assert list(whole.visits["subject"])[-1] == "leaf_0"
    assert "accumulate_grad_1(leaf_0, " in whole.data.stages[-1].code["replay"]


def test_variables_may_be_called_like_the_arguments_of_the_replay():
    inputs, hooks = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    inputs.register_hook(lambda gradient: gradient * 2)
    for n in (3, 4):
        sizes, packed, scalars = torch.randn(n, 3), torch.randn(3), torch.randn(3)
        inputs.grad = hooks.grad = None
        captured((inputs * hooks * sizes * packed * scalars).sum())
        torch.testing.assert_close(inputs.grad, 2 * (hooks * sizes.sum(0) * packed * scalars).detach())
