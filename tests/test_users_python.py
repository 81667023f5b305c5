"""A graph that runs no Python of the user's is not searched for tensors that this Python keeps; any other is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
from aotviz.ir.forms import Request
from aotviz.python_state import leaks, users_python


@torch.library.custom_op("aotviz_tests::kept", mutates_args=())
def kept_by_an_operator(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@kept_by_an_operator.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


PLAIN_PROGRAMS = {
    "a custom Function, whose code is two graphs": lambda x: Doubled.apply(x) + 1,
    "functions": lambda x: F.gelu(x).view(-1).sum() * 2,
    "methods": lambda x: x.mul(2).add_(1).softmax(-1),
    "a write": lambda x: (x * 2).add_(1),
    "a module": nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Dropout(0.5)),
}
PROGRAMS_WITH_PYTHON = {
    "a custom operator": lambda x: kept_by_an_operator(x) + 1,
    "a higher-order operator": branches,
}


@pytest.mark.parametrize("name", [*PLAIN_PROGRAMS, *PROGRAMS_WITH_PYTHON])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_tensors_are_looked_for_where_a_graph_runs_python_of_the_users(name, backend, monkeypatch):
    looked: list[str] = []
    undone = leaks.undone
    monkeypatch.setattr(leaks, "undone", lambda name, roots: (looked.append(name), undone(name, roots))[1])
    program = {**PLAIN_PROGRAMS, **PROGRAMS_WITH_PYTHON}[name]
    aotviz.compile(program, backend=backend, cache=False)(torch.ones(2, 3, requires_grad=name != "a custom operator"))
    assert bool(looked) is (name in PROGRAMS_WITH_PYTHON)


def test_they_are_looked_for_where_a_mode_a_hook_a_subclass_or_a_decomposition_is_the_users(monkeypatch):
    seen: list[Request] = []
    real = users_python.runs
    monkeypatch.setattr(users_python, "runs", lambda request: (seen.append(request), real(request))[1])
    aotviz.compile(lambda x: x.sin(), backend="eager", cache=False)(torch.ones(2))
    request = seen[0]
    assert not real(request)
    assert real(replace(request, is_graph=False))
    assert real(replace(request, args=(TwoTensor(torch.ones(2), torch.ones(2)),)))
    mine = replace(request.options, decompositions={torch.ops.aten.sin.default: lambda x: x})
    assert real(replace(request, options=mine))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        assert real(request)
    with TorchFunctionMode():
        assert real(request)
