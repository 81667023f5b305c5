"""Programs that once could not be found in the cache, or were found wrongly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import aotviz
from aotviz.runtime import call_differs


def outcomes(f: Callable[..., Any], folder: Path, *calls: tuple[Any, ...]) -> list[Any]:
    """What the cache answers, and the results, if a process is asked that has compiled nothing yet."""
    torch._dynamo.reset()
    with aotviz.record() as recording:
        compiled = aotviz.compile(f, backend="eager", cache=str(folder))
        results = [compiled(*call) for call in calls]
    lookups = recording.cache_lookups
    return [list(lookups[lookups["cache"] == "aotviz"]["outcome"]), results]


def nested(*lengths: int, columns: int) -> torch.Tensor:
    rows = [torch.randn(length, columns) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)


def test_a_checkpoint_that_draws_is_found(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> Any:
        return checkpoint(lambda y: torch.nn.functional.dropout(y.sin(), 0.5).exp(), x, use_reentrant=False)

    x = torch.ones(4, requires_grad=True)
    assert [outcomes(f, tmp_path, (x,))[0] for _ in range(2)] == [["miss"], ["hit"]]


def test_flex_attention_is_found(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> Any:
        return flex_attention(x, x, x, score_mod=lambda score, b, h, i, j: score * 0.5 + i - j)

    x = torch.randn(1, 1, 16, 16)
    assert [outcomes(f, tmp_path, (x,))[0] for _ in range(2)] == [["miss"], ["hit"]]


@pytest.mark.parametrize("sizes", [[((2, 3), 4)], [((2, 3), 4), ((4, 1), 5)]])
def test_a_nested_tensor_is_found(tmp_path: Path, sizes: list[tuple[tuple[int, ...], int]]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sin()

    given = [(nested(*lengths, columns=columns),) for lengths, columns in sizes]
    assert outcomes(f, tmp_path, *given)[0] == ["miss"] * len(sizes)
    found, results = outcomes(f, tmp_path, *given)
    assert found == ["hit"] * len(sizes)
    for (x,), result in zip(given, results, strict=True):
        torch.testing.assert_close(result.values(), f(x).values())


def product(first: torch.Tensor, second: torch.Tensor) -> Any:
    doubled = (first * second).exp()
    return (doubled.sin() * second).sum()


def renamed(left: torch.Tensor, right: torch.Tensor) -> Any:
    grown = (left * right).exp()
    return (grown.sin() * right).sum()


def test_errors_have_the_names_and_lines_of_this_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subjects: list[str] = []
    subject = call_differs._subject
    monkeypatch.setattr(call_differs, "_subject", lambda *known: subjects.append(subject(*known)) or subjects[-1])
    left, right = torch.randn(3, requires_grad=True), torch.randn(3)
    assert outcomes(product, tmp_path, (left, right))[0] == ["miss"]
    subjects.clear()
    found, (loss,) = outcomes(renamed, tmp_path, (left, right))
    assert found == ["hit"]
    right.add_(1)
    with pytest.raises(RuntimeError, match="right was written after the call of renamed"):
        loss.backward()
    assert "the result of `grown = (left * right).exp()`" in "".join(subjects)
    assert not [one for one in subjects if "first" in one or "second" in one or "doubled" in one]
