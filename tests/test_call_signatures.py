"""A program of `aot_function` serves the calls for which it is right; for others the function is compiled again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import aotviz
from aotviz.lowerings import run_graph
from tests.releases import takes_generators

X = torch.arange(1.0, 4.0)


def plain(x: torch.Tensor, n: Any) -> torch.Tensor:
    return x if n is None else x * n


def named(x: torch.Tensor, **others: Any) -> torch.Tensor:
    return x - 2 * others["a"] - 3 * others["b"] if "b" in others else x - others["a"]


def of_a_dict(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return batch["a"] - 2 * batch["b"]


def drawn(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x + torch.rand(3, generator=generator)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


A, B = X + 1, X * 5
CALLS: dict[str, tuple[Callable[..., Any], list[tuple[tuple[Any, ...], dict[str, Any]]], int]] = {
    "a number": (plain, [((X, 2), {}), ((X, 3), {}), ((X, 2), {}), ((X, 2.0), {})], 3),
    "a flag that equals a number": (plain, [((X, 1), {}), ((X, True), {})], 2),
    "None, then a tensor": (plain, [((X, None), {}), ((X, X), {}), ((X, torch.nn.Parameter(X, False)), {})], 2),
    "another order of names": (named, [((X,), {"a": A, "b": B}), ((X,), {"b": A, "a": B})], 2),
    "fewer names": (named, [((X,), {"a": A, "b": B}), ((X,), {"a": A})], 2),
    "another order of keys": (of_a_dict, [(({"a": A, "b": B},), {}), (({"b": A, "a": B},), {})], 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_call_has_eagers_result(name: str) -> None:
    function, calls, programs = CALLS[name]
    compiled = aotviz.aot_function(function, run_graph)
    for args, kwargs in calls:
        torch.testing.assert_close(compiled(*args, **kwargs), function(*args, **kwargs), rtol=0, atol=0)
    assert len(compiled.recording) == programs


@takes_generators
def test_another_generator_draws_its_own_numbers() -> None:
    compiled = aotviz.aot_function(drawn, run_graph)
    for seed in (1, 2):
        assert torch.equal(compiled(X, seeded(seed)), drawn(X, seeded(seed)))


def test_an_input_that_requires_grad_later_gets_its_gradient() -> None:
    compiled = aotviz.aot_function(lambda x, y: (x * y * y).sum(), run_graph)
    for marks in ((True, False), (True, True), (False, True), (True, True)):
        x, y = (X.clone().requires_grad_(mark) for mark in marks)
        compiled(x, y).backward()
        for one, other, mark in ((x, X * X, marks[0]), (y, 2 * X * X, marks[1])):
            assert torch.equal(one.grad, other) if mark else one.grad is None
    assert len(compiled.recording) == 2


def test_a_call_under_no_grad_comes_first() -> None:
    compiled = aotviz.aot_function(lambda x: (x * x).sum(), run_graph)
    x = X.clone().requires_grad_()
    with torch.no_grad():
        assert not compiled(x).requires_grad
    compiled(x).backward()
    assert torch.equal(x.grad, 2 * X)
    with torch.no_grad():  # which the program for training serves
        assert not compiled(x).requires_grad
    assert len(compiled.recording) == 2


def test_a_parameter_that_is_unfrozen_gets_its_gradient() -> None:
    layer = torch.nn.Linear(3, 1)
    layer.weight.requires_grad_(False)
    compiled = aotviz.aot_module(layer, run_graph)
    compiled(X).backward()
    assert layer.weight.grad is None
    layer.weight.requires_grad_(True)
    compiled(X).backward()
    assert torch.equal(layer.weight.grad, X[None])


def test_the_recording_says_why_it_was_compiled_again() -> None:
    compiled = aotviz.aot_function(plain, run_graph)
    for number in (2, 3):
        compiled(X, number)
    compiled(X.clone().requires_grad_(), 3)
    told = str(compiled.recording.explain())
    assert "`n` was 2 and is now" in told or "`n` was 2" in told
    assert "`x` did not require grad and requires grad now" in told


def test_after_the_limit_of_programs_calls_run_in_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 3)
    compiled = aotviz.aot_function(plain, run_graph)
    for number in range(3):
        compiled(X, number)
    with pytest.warns(aotviz.RanInEager, match="a call of plain runs in eager: .*recompile_limit"):
        assert torch.equal(compiled(X, 7), X * 7)
    assert torch.equal(compiled(X, 1), X)
    assert len(compiled.recording) == 4
    assert compiled.recording[3].data.error.ran_in_eager
