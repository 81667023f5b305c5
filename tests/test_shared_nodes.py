"""Common subexpressions: computed once where that is the same, and as torch's partitioner does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch._functorch.compile_utils import fx_graph_cse
from torch.fx.experimental.proxy_tensor import make_fx

import aotviz
from aotviz.ir import graphs
from aotviz.ir.partition_functions import share
from tests.oracle.models import FAMILIES


def traced(fn: Callable[..., Any], *args: Any) -> fx.GraphModule:
    return make_fx(fn, tracing_mode="fake")(*args)


def operators(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


X = torch.ones(3)
PROGRAMS: dict[str, Callable[..., Any]] = {
    "twice": lambda x: x.sin() * 2 + x.sin() * 2,
    "of another type": lambda x: (x * 1) + (x * 1.0),
    "sign of zero": lambda x: (x * 0.0 + 1) + (x * -0.0 + 1),
    "random": lambda x: torch.rand_like(x) + torch.rand_like(x),
    "two results": lambda x: (x.cos(), x.cos()),
    "uninitialised": lambda x: torch.empty(3).fill_(1) + torch.empty(3).fill_(2) + x,
    "across a write": lambda x: x.clone().mul_(2) + x.clone().mul_(2),
    "sizes": lambda x: x.view(3, 1).expand(3, 3).sum(0) + x.view(3, 1).expand(3, 3).sum(0),
    "several results": lambda x: torch.stack(x.split([1, 2])[0].unbind() + x.split([1, 2])[0].unbind()),
}
OTHERWISE = {"sign of zero"}  # torch's takes 0.0 for -0.0


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_the_same_with_fewer_nodes(name: str) -> None:
    fn = PROGRAMS[name]
    module = traced(fn, X)
    before = operators(module.graph)
    torchs = operators(fx_graph_cse(graphs.copy(module).graph))
    gone = share(module.graph)
    module.recompile()
    assert len(before) - len(operators(module.graph)) == gone
    if name not in OTHERWISE:
        assert operators(module.graph) == torchs
    torch.manual_seed(0)
    expected = fn(X)
    torch.manual_seed(0)
    torch.testing.assert_close(module(X), expected, rtol=0, atol=0)


def test_what_is_equal_goes_and_what_is_not_stays() -> None:
    gone = {name: share(traced(fn, X).graph) for name, fn in PROGRAMS.items()}
    assert gone["twice"] == 2
    assert gone["sign of zero"] == gone["random"] == gone["two results"] == gone["of another type"] == 0


@pytest.mark.parametrize("family", ["gpt2", "t5", "bert"])
def test_joint_graphs_of_models_are_those_of_torchs_pass(family: str) -> None:
    model, inputs = FAMILIES[family]()
    joint = aotviz.aot_export_joint_with_descriptors(None, model, (), inputs).graph_module
    joint.graph.eliminate_dead_code()
    torchs = operators(fx_graph_cse(graphs.copy(joint).graph))
    count = len(operators(joint.graph))
    assert share(joint.graph) == count - len(torchs)
    assert operators(joint.graph) == torchs
