"""Programs that once could not be found in the cache, or were found wrongly."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.decomposition import decompositions
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import aotviz
from aotviz.cache.content import Uncacheable, of_function
from aotviz.lowerings import Inductor
from aotviz.runtime import call_differs
from aotviz.torch_private import registered_operators
from tests.cache.captured import differing, keys


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


SETTINGS = types.ModuleType("settings_of_a_user")
NUMBER = 0.0


class Slotted:
    __slots__ = ("factor",)


class WithSlot(Slotted):
    pass


@dataclasses.dataclass
class Configured:
    name: str = ""

    def __post_init__(self) -> None:
        self.factor = 0.0


def of_instance(kind: type, factor: float) -> Any:
    made = kind()
    made.factor = factor
    return lambda g: g * made.factor


def with_an_attribute(factor: float) -> Any:
    def read(g: Any) -> Any:
        return g * known.factor

    known: Any = read
    known.factor = factor
    return read


def from_a_module_in_the_closure(factor: float) -> Any:
    settings: Any = SETTINGS
    settings.factor = factor
    return lambda g: g * settings.factor


READ: dict[str, Callable[[float], Any]] = {
    "a slot of an object with a __dict__": lambda factor: of_instance(WithSlot, factor),
    "an attribute of a dataclass that is no field": lambda factor: of_instance(Configured, factor),
    "an attribute of the function": with_an_attribute,
    "an attribute of a module in the closure": from_a_module_in_the_closure,
}


@pytest.mark.parametrize("make", READ.values(), ids=READ)
def test_a_value_that_a_function_reads_is_in_the_key(make: Callable[[float], Any]) -> None:
    assert of_function(make(1.0)) == of_function(make(1.0))
    assert of_function(make(1.0)) != of_function(make(2.0))


def in_a_function_inside(factor: float) -> Any:
    SETTINGS.factor = factor  # type: ignore[attr-defined]
    return lambda g: (lambda: g * SETTINGS.factor)()  # type: ignore[attr-defined]


def test_a_module_that_a_function_inside_reads_is_in_the_key() -> None:
    assert of_function(in_a_function_inside(1.0)) != of_function(in_a_function_inside(2.0))


def by_getattr(g: Any) -> Any:
    return g * getattr(SETTINGS, "factor")  # noqa: B009


def by_vars(g: Any) -> Any:
    return g * vars(SETTINGS)["factor"]


def by_globals(g: Any) -> Any:
    return g * globals()["NUMBER"]


def by_eval(g: Any) -> Any:
    return g * eval("NUMBER")


def by_default(g: Any, settings: Any = SETTINGS) -> Any:
    return g * settings.factor


@pytest.mark.parametrize("fn", [by_getattr, by_vars, by_globals, by_eval, by_default], ids=lambda fn: fn.__name__)
def test_what_cannot_be_known_is_not_cached(fn: Callable[..., Any]) -> None:
    with pytest.raises(Uncacheable):
        of_function(fn)


@torch.library.custom_op("tests_attacks::inner", mutates_args=())
def inner(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def reads_torch(g: Any) -> Any:
    return torch.nn.functional.relu(g) * torch.factor_of_a_user * math.sqrt(2.0)  # type: ignore[attr-defined]


def calls_an_added_method(g: Any) -> Any:
    return g.times_factor()


def calls_by_name(g: Any) -> Any:
    return torch.ops.tests_attacks.inner(g)


PUT: dict[str, tuple[Callable[..., Any], Any, str, Any, Any]] = {
    "an attribute of torch": (reads_torch, torch, "factor_of_a_user", 1.0, 2.0),
    "a function of torch": (reads_torch, torch.nn.functional, "relu", torch.nn.functional.relu, lambda x: x),
    "one of torch's for another": (reads_torch, torch.nn.functional, "relu", torch.relu, torch.nn.functional.gelu),
    "a function of Python's": (reads_torch, math, "sqrt", math.sqrt, math.sin),
    "a method of tensors": (calls_an_added_method, torch.Tensor, "times_factor", lambda x: x * 2, lambda x: x * 3),
    "an operator's function": (calls_by_name, inner, "_init_fn", inner._init_fn, lambda x: x * 3),
}


@pytest.mark.parametrize(("fn", "owner", "name", "before", "after"), PUT.values(), ids=PUT)
def test_what_a_user_puts_into_torch_is_in_the_key(
    fn: Any, owner: Any, name: str, before: Any, after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "factor_of_a_user", 1.0, raising=False)
    found = []
    for value in (before, before, after):
        monkeypatch.setattr(owner, name, value, raising=False)
        found.append(of_function(fn))
    assert found[0] == found[1] != found[2]


def test_an_overridden_operator_of_torch_is_named_until_it_is_torchs_again(tmp_path: Path) -> None:
    x = torch.ones(4, requires_grad=True)
    library = torch.library.Library("aten", "IMPL")
    library.impl("tanh", lambda y: y * 2, "AutogradCPU")
    try:
        assert registered_operators.overridden() == "aten::tanh for AutogradCPU"
        assert outcomes(torch.sin, tmp_path, (x,))[0] == ["bypass"]
    finally:
        library._destroy()
    assert registered_operators.overridden() == ""
    assert [outcomes(torch.sin, tmp_path, (x,))[0] for _ in range(2)] == [["miss"], ["hit"]]


def test_a_decomposition_added_to_inductors_table_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for function in (None, lambda x: x * 2, lambda x: x * 2, lambda x: x * 3):
        if function is not None:
            monkeypatch.setitem(decompositions, torch.ops.aten.atan.default, function)
        found += keys(torch.atan, torch.ones(4), lowering=Inductor({}))
    assert differing(found[0], found[1]) == differing(found[2], found[3]) == {"backend"}
    assert not differing(found[1], found[2])
