"""`aotviz.verify`: right is called right, wrong is called wrong, and nothing that the user holds is touched."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.comparing.given_call import fresh, in_eager
from aotviz.comparing.judging import judge
from aotviz.comparing.observed import Candidate, same, values
from aotviz.comparing.same_graph import difference
from aotviz.runtime.tensor_copies import copies
from tests.oracle.programs import PROGRAMS
from tests.releases import fails_at_a_hessian_under_vmap
from tests.test_bisect import cosine_for_sine, inputs, step

LAYER = nn.Linear(3, 2)


def uses_a_global_module(x: torch.Tensor) -> torch.Tensor:
    return LAYER(x).tanh()


def test_a_right_call_is_right_and_has_torchs_graphs() -> None:
    found = aotviz.verify(step, *inputs())
    assert found
    assert found.same_graphs
    assert [check.role for check in found.graphs] == ["joint", "forward", "backward"]
    assert found.first_difference == ""


def test_graphs_are_compared_again_where_a_cache_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path))  # a program from the cache has no graphs to compare
    found = [aotviz.verify(step, *inputs()).same_graphs for _ in range(2)]
    assert found == [True, True]


@pytest.mark.parametrize(
    "fn", [nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)), uses_a_global_module]
)
def test_modules_are_copied_and_left_alone(fn: Any) -> None:
    module = fn if isinstance(fn, nn.Module) else LAYER
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = aotviz.verify(fn, torch.randn(4, 3))
    assert found, str(found)
    assert found.same_graphs, str(found)
    assert found.torchs.status in ("equal", "details"), str(found)
    assert all(parameter.grad is None for parameter in module.parameters())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_wrong_call_names_stage_and_node() -> None:
    found = aotviz.verify(step, *inputs(), options={"backend": cosine_for_sine})
    assert not found
    assert found.ours.status == "wrong"
    assert found.torchs.status == "equal"
    assert "stage 'lower', node 'sin'" in found.first_difference
    assert "step: wrong" in str(found)


@pytest.mark.slow
def test_a_refusal_is_told_from_a_wrong_result() -> None:
    def overlapping(x: torch.Tensor) -> torch.Tensor:
        x.as_strided((3, 3), (1, 1)).mul_(2)
        return x + 1

    found = aotviz.verify(overlapping, torch.ones(5))
    assert not found
    assert found.verdict == "raises"
    assert "by mul_" in str(found)


def test_a_notebook_shows_escaped_text() -> None:
    def sneaky(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    sneaky.__name__ = "<script>alert(1)</script>"
    shown = aotviz.verify(sneaky, torch.ones(2))._repr_html_()
    assert "<script>" not in shown
    assert html.escape("<script>") in shown


def test_keyword_arguments_belong_to_the_function() -> None:
    def scaled(x: torch.Tensor, *, by: dict[str, torch.Tensor]) -> torch.Tensor:
        return x * by["amount"]

    assert aotviz.verify(scaled, torch.ones(2), by={"amount": torch.ones(2, requires_grad=True)})


@pytest.mark.parametrize("name", sorted(name for name in PROGRAMS if "storage" in name or "input" in name))
def test_copies_lie_in_memory_as_the_originals_do(name: str) -> None:
    setup = PROGRAMS[name].builds[0]()
    _, args, _, _ = fresh(setup.fn, setup.args, setup.kwargs)
    originals = [a for a in setup.args if isinstance(a, torch.Tensor)]
    made = [a for a in args if isinstance(a, torch.Tensor)]
    pairs = [(i, j) for i in range(len(made)) for j in range(i)]
    sharing = [
        [group[i].untyped_storage()._cdata == group[j].untyped_storage()._cdata for i, j in pairs]
        for group in (made, originals)
    ]
    assert sharing[0] == sharing[1]
    for one, other in zip(originals, made, strict=True):
        assert other.untyped_storage()._cdata != one.untyped_storage()._cdata
        assert (one.stride(), one.storage_offset(), one.is_leaf, one.requires_grad) == (
            other.stride(),
            other.storage_offset(),
            other.is_leaf,
            other.requires_grad,
        )
        assert (one._base is None) == (other._base is None)
        agree = same(values(one), values(other))  # a failure must not print what may have no memory
        assert agree


def test_one_tensor_twice_is_one_copy() -> None:
    x = torch.ones(2)
    assert len(copies([x, x])) == 1


def test_graphs_in_another_order_are_told_from_different_ones() -> None:
    def graph(names: str) -> torch.fx.GraphModule:
        made = torch.fx.Graph()
        x = made.placeholder("x")
        found = {name: made.call_function(getattr(torch, name), (x,)) for name in names.split()}
        made.output((found["sin"], found["cos"]))
        return torch.fx.GraphModule(nn.Module(), made)

    assert difference(graph("sin cos"), graph("sin cos")) is None
    reordered, longer = (
        difference(graph("sin cos"), graph("cos sin")),
        difference(graph("sin cos"), graph("sin cos tan")),
    )
    assert reordered is not None
    assert reordered.kind == "order"
    assert longer is not None
    assert longer.kind == "extra"


def test_what_cannot_be_copied_is_said_to() -> None:
    class Held:
        def __deepcopy__(self, memo: Any) -> Any:
            raise ValueError("a handle")

    with pytest.raises(TypeError, match="cannot be copied: a handle"):
        aotviz.verify(lambda x, held: x * 2, torch.ones(2), Held())


@pytest.mark.parametrize("ask", [aotviz.verify, aotviz.bisect])
def test_a_call_that_differs_from_itself_is_not_blamed_on_aotviz(ask: Any) -> None:
    numbers = iter(range(1, 1000))
    with pytest.raises(RuntimeError, match="returns different results each time in eager"):
        ask(lambda x: x * next(numbers), torch.ones(2))


def test_equal_results_by_other_nodes_do_not_alarm() -> None:
    def step(m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        m.add_(1)
        return m[0], m.t()

    found = aotviz.verify(step, torch.ones(3, 4))
    assert found.equal
    assert not found.same_graphs
    assert "differs" not in str(found)
    assert "first difference" not in str(found).lower()
    assert "the results are right, by other nodes than torch's: stage 'trace'" in str(found)
    assert "The results are right, by other nodes" in found._repr_html_()


def test_differences_of_views_of_one_tensor_are_said_to_be_one() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x.add_(1)
        return x[0], x.view(-1), y * 2

    def wrong(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x.add_(2)
        return x[0], x.view(-1), y * 3

    _, program, expected = in_eager(step, (torch.ones(2, 3), torch.ones(2)), {})
    verdict = judge(program, Candidate("wrong", lambda *_: wrong), expected)
    assert verdict.status == "wrong"
    assert verdict.alike == ("input 0, output 0 and output 1 share memory in eager: their values differ as one",)
    assert verdict.alike[0] in str(verdict)


@fails_at_a_hessian_under_vmap
def test_what_dynamo_gets_wrong_and_runs_in_eager_is_one_line() -> None:
    def cubes(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.hessian(lambda t: (t**3).sum()))(x)

    found = aotviz.verify(cubes, torch.ones(2, 3))
    assert found, str(found)
    (line,) = [line for line in str(found).splitlines() if "ran in eager" in line]
    assert "a transform of torch.func in `cubes` runs in eager because Dynamo fails inside it" in line
