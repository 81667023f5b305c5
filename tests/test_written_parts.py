"""A tensor subclass of two parts that the call writes, while the other part, or another argument, is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

import aotviz
from aotviz.lowerings import run_graph

aten = torch.ops.aten


class Scaled(torch.Tensor):
    """Whole numbers and their scale."""

    q: torch.Tensor
    s: torch.Tensor

    @staticmethod
    def __new__(cls, q: torch.Tensor, s: torch.Tensor) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(cls, q.size(), dtype=torch.float32, strides=q.stride())

    def __init__(self, q: torch.Tensor, s: torch.Tensor) -> None:
        self.q, self.s = q, s

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["q", "s"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, torch.Tensor], context: None, size: Any, stride: Any) -> Scaled:
        return Scaled(parts["q"], parts["s"])

    def plain(self) -> torch.Tensor:
        return self.q.to(torch.float32) * self.s

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            made = Scaled(args[0].q.detach(), args[0].s.detach())
            return return_and_correct_aliasing(func, args, kwargs or {}, made)
        if func is aten.clone.default:
            return Scaled(args[0].q.clone(), args[0].s.clone())
        if func in (aten.mul_.Scalar, aten.mul_.Tensor):
            args[0].q.mul_(args[1])
            return args[0]
        plain = pytree.tree_map_only(Scaled, Scaled.plain, args)
        return func(*plain, **(kwargs or {}))


def writes_its_data(w: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    w.data.mul_(2)
    return (x @ w) * y


def writes_a_part(w: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    w.q.mul_(2)
    return (x @ w) * y


def writes_the_whole(w: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    w.mul_(2)
    return (x @ w) * y


def given() -> tuple[Any, ...]:
    torch.manual_seed(0)
    w = Scaled(torch.ones(3, 3, dtype=torch.int8), torch.tensor(0.5))
    return w, *(torch.randn(3, 3, requires_grad=True) for _ in range(2))


def left(function: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
    w, x, y = given()
    for _ in range(2):
        function(w, x, y).sum().backward()
    return x.grad, y.grad, w.q, w.s


@pytest.mark.parametrize("door", ["aot_function", "compile"])
@pytest.mark.parametrize("function", [writes_its_data, writes_a_part, writes_the_whole])
@pytest.mark.filterwarnings("ignore::aotviz.RanInEager")  # for Dynamo, a part of an argument is another argument
def test_gradients_are_of_the_part_that_is_saved(function: Any, door: str, clean_dynamo: None) -> None:
    if door == "compile":
        compiled = torch.compile(function, backend="aotviz_eager")
    else:
        compiled = aotviz.aot_function(function, run_graph)
    for ours, eager in zip(left(compiled), left(function), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)


class Stored(torch.autograd.Function):
    """A Function that stores an argument as an attribute of ctx: its backward sees later writes to it."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.b = b
        return a * b

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.b, None


@pytest.mark.parametrize("door", ["aot_function", "compile"])
def test_an_argument_beside_a_subclass_that_a_function_stores_may_be_written(door: str, clean_dynamo: None) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    def f(two: Any, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, Any]:
        b.mul_(2)
        return Stored.apply(a, b) * 1, two * 2

    compiled = torch.compile(f, backend="aotviz_eager") if door == "compile" else aotviz.aot_function(f, run_graph)
    found = []
    for function in (f, compiled):
        two, a, b = TwoTensor(torch.ones(3), torch.ones(3)), torch.ones(3, requires_grad=True), torch.full((3,), 5.0)
        function(two, a, b)[0].sum().backward()
        found.append((a.grad, b))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    assert found[0][0].tolist() == [10.0] * 3


def writes_and_returns_the_values(n: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n.mul_(2)
    return ((n * x) @ y).values()


def writes_and_pads(n: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n.mul_(2)
    return (n * x).to_padded_tensor(0.0) @ y


def writes_the_values(n: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n.values().mul_(2)
    return (n * x).to_padded_tensor(0.0) @ y


@pytest.mark.parametrize("door", ["aot_function", "compile"])
@pytest.mark.parametrize("function", [writes_and_returns_the_values, writes_and_pads, writes_the_values])
def test_a_jagged_tensor_is_written_and_used_for_a_gradient(function: Any, door: str, clean_dynamo: None) -> None:
    compiled = (
        torch.compile(function, backend="aotviz_eager")
        if door == "compile"
        else aotviz.aot_function(function, run_graph)
    )
    found = []
    for one in (function, compiled):
        torch.manual_seed(0)
        parts = [torch.ones(2, 3), torch.full((3, 3), 2.0)]
        n = torch.nested.nested_tensor(parts, layout=torch.jagged)
        x, y = (torch.randn(rows, 3, requires_grad=True) for rows in (1, 3))
        one(n, x, y).sum().backward()
        found.append((x.grad, y.grad, n.values()))
    torch.testing.assert_close(found[1], found[0])
