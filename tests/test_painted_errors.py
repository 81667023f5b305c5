"""`bisect` and `verify` show the graph with the error of each node, opened where the error begins."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import IPython.display
import pytest
import torch
from torch import fx

import aotviz
from aotviz.comparing.errors import error
from aotviz.recording.findings import Painting

aten = torch.ops.aten


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = (x * w).tanh()
    return (hidden.sin() * hidden).sum() + (hidden * 2).exp().mean()


def call() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linspace(-1, 1, 6), torch.linspace(1, 2, 6).requires_grad_()


def swapped(graph: fx.GraphModule, old: Any, new: Any) -> fx.GraphModule:
    for node in graph.graph.find_nodes(op="call_function", target=old):
        node.target = new
    graph.recompile()
    return graph


def wrong_compiler(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    return swapped(graph, aten.sin.default, aten.cos.default).forward


def painting(found: aotviz.comparing.bisecting.Bisection) -> Painting:
    assert found.recording is not None
    (painted,) = found.recording.data.paintings
    return painted


def test_a_wrong_compiler_is_shown_after_lowering_at_its_node() -> None:
    found = aotviz.bisect(step, *call(), options={"backend": wrong_compiler}, repro=None)
    painted = painting(found)
    assert (
        (painted.stage, painted.graph, painted.node)
        == ("lower", "forward", "sin")
        == (found.stage, "forward", found.node)
    )
    assert painted.note == str(found)
    errors = found.errors.droplevel("graph")
    expected = (call()[0] * call()[1]).tanh()
    assert errors["sin"] == pytest.approx((expected.sin() - expected.cos()).abs().max().item(), rel=1e-6)
    assert errors[["tanh", "exp", "mean"]].tolist() == [0, 0, 0]
    assert errors["add"] > 0.1


def test_a_wrong_partition_is_shown_in_forward_and_backward() -> None:
    def joint_pass(graph: fx.GraphModule, _: Any) -> fx.GraphModule:
        return swapped(graph, aten.exp.default, aten.sin.default)

    found = aotviz.bisect(step, *call(), options={"joint_pass": joint_pass}, repro=None)
    painted = painting(found)
    assert (painted.stage, painted.graph, painted.node) == ("partition", "forward", "exp")
    backward = set(found.recording[0].graph("backward", stage="partition").nodes.name) if found.recording else set()
    assert {"exp", "mean", "add"} <= {name for (_, name), value in found.errors.items() if value > 0}
    assert {name for (graph, name) in found.errors.index if graph == "backward"} <= backward


def test_a_wrong_decomposition_is_shown_in_the_graph_without_it() -> None:
    found = aotviz.bisect(step, *call(), options={"decompositions": {aten.sin.default: torch.cos}}, repro=None)
    painted = painting(found)
    assert (painted.stage, painted.node, painted.names) == ("trace", "sin", ["sin"])
    assert painted.numbers[0] > 0.1


def test_nothing_wrong_shows_nothing() -> None:
    found = aotviz.bisect(step, *call(), repro=None)
    assert not found
    assert found.recording is None
    assert found.errors.empty


def test_a_notebook_gets_the_text_and_then_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", lambda what, raw=False: shown.append(what))
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    found = aotviz.verify(step, *call(), options={"backend": wrong_compiler})
    found._ipython_display_()
    assert shown[0] == {"text/plain": str(found), "text/html": found._repr_html_()}
    assert found.cause is not None
    assert shown[1] is found.cause.recording
    monkeypatch.delitem(sys.modules, "ipykernel")  # IPython in a terminal
    found._ipython_display_()
    assert len(shown) == 3


def test_the_error_of_a_node_is_the_largest_difference_and_what_cannot_be_subtracted_is_infinite() -> None:
    one = torch.tensor([1.0, math.nan, math.inf])
    assert error(one, one) == 0
    assert error(one, torch.tensor([1.5, math.nan, math.inf])) == 0.5
    assert math.isnan(error(one, torch.tensor([1.0, 1.0, math.inf])))
    assert error(one, torch.tensor([1.0, math.nan, 2.0])) == math.inf
    assert error(torch.tensor([3]), torch.tensor([5])) == 2
    assert error(torch.tensor([True]), torch.tensor([False])) == 1
    assert error(torch.ones(2), torch.ones(2, dtype=torch.float64)) == math.inf
    assert error((torch.ones(2), 3), (torch.ones(2), 4)) == math.inf
    assert error((torch.ones(2), 3), (torch.zeros(2), 3)) == 1
    assert error(torch.ones(0), torch.ones(0)) == 0
