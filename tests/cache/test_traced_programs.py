"""`aot_function` and its family find in the cache what an earlier process compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.lowerings import run_graph
from tests.cache.test_programs_from_cache import run_twice
from tests.recorder.test_replayed import comparable

ON = pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])


def step(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = nn.functional.dropout(torch.sin(x) @ w, 0.5)
    x.mul_(2.0)
    return {"loss": y.relu().sum(), "view": y.view(-1)}


def inputs(rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(4.0 * rows).view(rows, 4), torch.arange(20.0).view(4, 5).requires_grad_()


def results(fn: Callable[..., Any], rows: int = 3) -> list[torch.Tensor]:
    torch.manual_seed(3)
    x, w = inputs(rows)
    found = fn(x, w)
    (found["loss"] + found["view"].sin().sum()).backward()
    return [found["loss"].detach(), found["view"].detach(), x, w.grad]


def outcomes(compiled: Any) -> list[str]:
    return list(compiled.recording.cache_lookups["outcome"])


@ON
def test_a_second_function_is_the_first_one_again(dynamic: bool, tmp_path: Path) -> None:
    first, second = (aotviz.aot_function(step, run_graph, dynamic=dynamic, cache=tmp_path) for _ in range(2))
    plain = results(step)
    for compiled, outcome in ((first, "miss"), (second, "hit")):
        assert all(map(torch.equal, results(compiled), plain))
        assert outcomes(compiled) == [outcome]
    assert second.source == first.source
    one, other = comparable(first.recording[0]), comparable(second.recording[0])
    assert other == one
    assert second.recording[0].data.replayed.saved_ns > 0


def test_a_function_that_differs_is_a_miss_that_says_how(tmp_path: Path) -> None:
    def other(x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.cos(x) @ w

    aotviz.aot_function(lambda x, w: torch.sin(x) @ w, run_graph, cache=tmp_path)(*inputs())
    compiled = aotviz.aot_function(other, run_graph, cache=tmp_path)
    compiled(*inputs())
    assert outcomes(compiled) == ["miss"]
    ((differs,),) = compiled.recording.cache_lookups[["differs"]].values.tolist()
    then, now = {name: values for name, *values in differs}["program"]
    assert "sin" in then
    assert "cos" in now


def test_modules_and_backends_of_the_users_are_found(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    made: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(aotviz.aot_module_simplified(graph, inputs, run_graph, cache=tmp_path / "simplified"))
        return made[-1]

    wanted = None
    for outcome in ("miss", "hit"):
        torch.compiler.reset()
        whole = aotviz.aot_module(model, run_graph, cache=tmp_path / "module")
        for compiled, recording in ((whole, whole), (torch.compile(model, backend=backend), made)):
            model.zero_grad()
            model[1].reset_running_stats()
            compiled(torch.arange(12.0).view(3, 4)).sum().backward()
            found = [*(p.grad.clone() for p in model.parameters()), *(b.clone() for b in model.buffers())]
            wanted = wanted or found
            assert all(map(torch.equal, found, wanted))
            assert outcomes(recording[-1] if recording is made else recording) == [outcome]


def test_a_second_derivative_and_an_error_of_a_program_from_the_cache(tmp_path: Path) -> None:
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3 if x.dim() else x.item()

    for _ in range(2):
        compiled = aotviz.aot_function(cube, run_graph, cache=tmp_path)
        x = torch.ones(2, requires_grad=True)
        (first,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        assert torch.autograd.grad(first.sum(), x)[0].tolist() == [6.0, 6.0]
    assert outcomes(compiled) == ["hit"]
    failing = aotviz.aot_function(lambda x: torch.ones(3) @ x, run_graph, cache=tmp_path)
    with pytest.raises(RuntimeError, match="2 elements"):
        failing(torch.ones(2))
    assert failing.recording[0].data.error.stage == "metadata"


@pytest.mark.parametrize(
    ("fn", "compiler", "reason"),
    [
        (torch.sin, lambda graph, inputs: graph, "Python function whose result cannot be stored"),
        (lambda x: x.view(-1).mul_(x.view(-1)), run_graph, None),
        (lambda x, y=None: x.sin(), run_graph, None),
    ],
)
def test_what_has_no_key_is_compiled_and_says_why(fn: Any, compiler: Any, reason: str | None, tmp_path: Path) -> None:
    compiled = aotviz.aot_function(fn, compiler, cache=tmp_path)
    compiled(torch.ones(2, 2))
    (row,) = compiled.recording.cache_lookups[["outcome", "reason"]].itertuples(index=False)
    assert (row.outcome == "bypass") == (reason is not None)
    assert reason is None or reason in row.reason


@ON
def test_programs_for_arguments_that_share_memory_otherwise_are_found(dynamic: bool, tmp_path: Path) -> None:
    def writes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        b.add_(1)
        return model(a) + b.sum()

    def arguments(pattern: str) -> tuple[torch.Tensor, torch.Tensor]:
        memory = torch.arange(32.0).view(8, 4)
        return {
            "separate": (memory[:4], memory[4:].clone()),
            "overlapping": (memory[:4], memory[2:6]),
            "the same": (memory[:4], memory[:4]),
            "of another size": (memory[:5], memory[1:6]),
        }[pattern]

    model = nn.Linear(4, 4)
    for outcome in ("miss", "hit"):
        torch.compiler.reset()
        compiled = torch.compile(writes, backend="aotviz_eager", dynamic=dynamic, options={"cache": tmp_path})
        with aotviz.record() as recording:
            for pattern in ("separate", "overlapping", "the same", "of another size"):
                args, plain = arguments(pattern), arguments(pattern)
                assert torch.equal(compiled(*args), writes(*plain)), pattern
                assert all(map(torch.equal, args, plain)), pattern
        assert list(recording.cache_lookups["outcome"]) == [outcome] * 4


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def asked(**options: Any) -> list[str]:
        compiled = aotviz.aot_function(torch.sin, run_graph, **options)
        compiled(torch.ones(2))
        return outcomes(compiled) if len(compiled.recording.cache_lookups) else []

    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path))
    assert [asked(), asked(), asked(cache=False), asked(debug=True)] == [["miss"], ["hit"], [], []]
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", "off")
    assert [asked(), asked(cache=tmp_path)] == [[], ["hit"]]
    with pytest.raises(TypeError, match="cache is 3"):
        asked(cache=3)


@pytest.mark.slow
def test_random_programs_are_in_a_second_process_what_they_were_in_the_first(tmp_path: Path) -> None:
    turns = run_twice("warm", tmp_path, "aot_function", "7000", "0", "40")
    assert [now["verdict"] for _, now in turns] == [before["verdict"] for before, _ in turns]
    hits = [(before, now) for before, now in turns if now["outcomes"] == ["hit"]]
    assert len(hits) > 10
    assert [now["wrappers"] for _, now in hits] == [before["wrappers"] for before, _ in hits]
    assert {answer for _, one in turns for answer in one["outcomes"]} <= {"hit", "bypass", "miss"}
