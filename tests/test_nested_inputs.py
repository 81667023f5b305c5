"""A graph of Dynamo's that takes lists, as compiled autograd's do: each part is an input, under its own name."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx, nn

import aotviz
import aotviz.frontends.backend
from aotviz.frontends.backend import aotviz_eager, aotviz_inductor

pytestmark = pytest.mark.usefixtures("clean_dynamo")


def graph_of_nested_inputs():
    """lambda xs, named, y: (xs[0] * y, named["a"].sin(), cat(xs), xs[-1], xs[1].add_(1))"""
    graph = fx.Graph()
    xs, named, y = map(graph.placeholder, ("xs", "named", "y"))
    first, last = (graph.call_function(operator.getitem, (xs, i)) for i in (0, -1))
    written = graph.call_method("add_", (graph.call_function(operator.getitem, (xs, 1)), 1))
    sine = graph.call_method("sin", (graph.call_function(operator.getitem, (named, "a")),))
    results = (graph.call_function(torch.mul, (first, y)), sine, graph.call_function(torch.cat, (xs,)), last, written)
    graph.output(results)
    return fx.GraphModule({}, graph)


def given():
    return [torch.ones(2), torch.zeros(3)], {"a": torch.ones(1)}, torch.full((2,), 3.0)


def test_parts_of_nested_inputs_are_inputs_by_name():
    module, expected, arguments = graph_of_nested_inputs(), given(), given()
    with aotviz.record() as recording:
        compiled = aotviz_eager(module, given())
    torch.testing.assert_close(list(compiled(*arguments)), list(module(*expected)))
    torch.testing.assert_close(arguments, expected)
    assert list(recording[0].inputs.name) == ["xs[0]", "xs[1]", "named['a']", "y"]


def test_a_list_that_may_be_emptied_is_emptied():
    module = graph_of_nested_inputs()
    next(iter(module.graph.nodes)).meta["steal_arg"] = True
    arguments = given()
    aotviz_eager(module, given())(*arguments)
    assert arguments[0] == []
    assert list(arguments[1]) == ["a"]


def test_inductor_takes_nested_inputs():
    module, expected, arguments = graph_of_nested_inputs(), given(), given()
    torch.testing.assert_close(list(aotviz_inductor(module, given())(*arguments)), list(module(*expected)))
    torch.testing.assert_close(arguments, expected)


def test_compiled_autograd_compiles_its_graphs():
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))

    def gradients(context):
        module.zero_grad()
        for rows in (4, 4, 5):
            with context():
                module(torch.ones(rows, 3)).sum().backward()
        return [p.grad.clone() for p in module.parameters()]

    def compiled():
        return torch._dynamo.compiled_autograd._enable(lambda graph: torch.compile(graph, backend="aotviz_eager"))

    with aotviz.record() as recording:
        found = gradients(compiled)
    torch.testing.assert_close(found, gradients(torch.enable_grad))
    assert any(name.startswith("inputs[") for name in recording[0].inputs.name)
