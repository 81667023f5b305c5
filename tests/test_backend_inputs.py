"""What the backend knows of its inputs, and what it may take for granted about them in later calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._guards import DuplicateInputs, TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

import aotviz
import aotviz.frontends.backend
from aotviz.frontends.requests import graph_request
from aotviz.lowerings import lowering_named, run_graph

OPTIONS = lowering_named("eager").options()


def doubles(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return y + 1


def spread(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return y * z


BASE = torch.arange(8.0)


def separate() -> list[torch.Tensor]:
    return [torch.ones(3), torch.ones(3)]


def overlapping(start: int = 1) -> list[torch.Tensor]:
    base = BASE.clone()
    return [base[:3], base[start : start + 3]]


@pytest.mark.parametrize(
    "calls",
    [
        [separate, overlapping],
        [overlapping, separate],
        [overlapping, lambda: overlapping(2), separate, lambda: overlapping(4)],
        [lambda: overlapping(4), overlapping],
    ],
)
def test_later_calls_may_overlap_otherwise(calls: list[Any]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(doubles, backend="aotviz_eager")
    for call in calls:
        expected, found = call(), call()
        torch.testing.assert_close(compiled(*found), doubles(*expected))
        torch.testing.assert_close(found, expected)


def test_what_was_passed_twice_is_guarded_to_be_passed_twice() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(spread, backend="aotviz_eager")
    for first, second in (("x", "x"), ("x", "y"), ("y", "x")):
        results = []
        for run in (spread, compiled):
            made = {"x": BASE[:3].clone(), "y": BASE[3:6].clone()}
            results.append(run(made["x"], made[first], made[second]))
        torch.testing.assert_close(*results)


class Source:
    """As much of a source of Dynamo's as a guard asks for."""

    def __init__(self, name: str) -> None:
        self.name = name


def graph_with_sources() -> torch.fx.GraphModule:
    module = torch.fx.symbolic_trace(lambda a, b: (a.mul_(2), b + 1))
    for node in module.graph.find_nodes(op="placeholder"):
        node._dynamo_source = Source(f"L[{node.name!r}]")
    return module


def test_a_merged_duplicate_becomes_a_guard_of_dynamos() -> None:
    x = torch.ones(3)
    context = TracingContext(FakeTensorMode())
    with tracing(context):
        aotviz.aot_module_simplified(graph_with_sources(), [x, x], run_graph)
        aotviz.aot_module_simplified(graph_with_sources(), separate(), run_graph)
    (guard,) = context.guards_context.aotautograd_guards
    assert isinstance(guard, DuplicateInputs)
    assert (guard.input_source_a.name, guard.input_source_b.name) == ("L['a']", "L['b']")


def test_what_stays_in_memory_is_known() -> None:
    module = graph_with_sources()
    first, _ = module.graph.find_nodes(op="placeholder")
    first.meta["tensor_dict"] = {"_dynamo_static_input_type": "unguarded"}
    assert graph_request(module, tuple(separate()), OPTIONS, None).static_inputs == (0,)
    assert graph_request(torch.nn.BatchNorm1d(3), (torch.ones(2, 3),), OPTIONS, None).static_inputs == (0, 1, 2, 3, 4)


def test_lifted_parameters_are_told_to_compilers() -> None:
    layer = torch.nn.Linear(3, 2)
    seen: list[Any] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        seen.append(TracingContext.get().params_flat)
        return run_graph(graph, inputs)

    with tracing(TracingContext(FakeTensorMode())):
        aotviz.aot_module_simplified(layer, [torch.ones(1, 3)], compiler)
    assert [id(p) for p in seen[0]] == [id(layer.weight), id(layer.bias)]


def multiplied_then_assigned(x):
    x.mul_(3)
    x.data = torch.ones(4)
    return x * 2


def zeroed_then_assigned(x):
    x.zero_()
    x.data = x * 2.0


@pytest.mark.parametrize("fn", [multiplied_then_assigned, zeroed_then_assigned])
def test_an_input_keeps_the_history_of_its_writes_when_data_is_assigned(fn):
    gradients = []
    for call in (fn, torch.compile(fn, backend="aotviz_eager")):
        leaf = torch.arange(4.0, requires_grad=True)
        x = leaf * 1.5
        call(x)
        x.sin().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)
