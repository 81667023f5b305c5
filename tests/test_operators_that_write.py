"""Operators of a `torch.library.Library` that write an argument: autograd sees it, as in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import aotviz

DOORS: dict[str, Callable[[Any], Any]] = {
    "aot_function": lambda fn: aotviz.aot_function(fn, aotviz.lowerings.run_graph),
    "compile": lambda fn: aotviz.compile(fn, backend="eager"),
    "compiled autograd": lambda fn: aotviz.compile(fn, backend="eager", compiled_autograd=True),
}
pytestmark = pytest.mark.usefixtures("clean_dynamo")


@pytest.fixture(scope="module", autouse=True)
def _operators() -> Iterator[None]:
    def increase(x: torch.Tensor) -> None:
        x.add_(1)

    def increase_all(xs: list[torch.Tensor]) -> None:
        for x in xs:
            x.add_(1)

    library = torch.library.Library("tests_writing", "DEF")
    library.define("increase(Tensor(a!) x) -> ()")
    library.define("increase.all(Tensor(a!)[] xs) -> ()")
    library.impl("increase", increase, "CPU")
    library.impl("increase.all", increase_all, "CompositeExplicitAutograd")
    for name in ("increase", "increase.all"):
        library.impl(name, lambda _: None, "Meta")
    yield
    library._destroy()


def whole(x: torch.Tensor) -> None:
    torch.ops.tests_writing.increase(x)


def row(x: torch.Tensor) -> None:
    torch.ops.tests_writing.increase(x[0])


def rows(x: torch.Tensor) -> None:
    torch.ops.tests_writing.increase.all([x[0], x[1]])


WRITES = pytest.mark.parametrize("write", [whole, row, rows])
BY_EACH_DOOR = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)


@WRITES
@BY_EACH_DOOR
def test_what_was_read_before_cannot_be_differentiated(door: Any, write: Any) -> None:
    def reads_and_writes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (w * x).sum()
        write(x)
        return y

    def backward(fn: Any) -> None:
        fn(torch.ones(2, 3), torch.ones(3, requires_grad=True)).backward()

    for fn in (reads_and_writes, door(reads_and_writes)):
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation|written in place afterwards"):
            backward(fn)


@WRITES
@BY_EACH_DOOR
def test_a_backward_of_another_call_sees_the_write(door: Any, write: Any) -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        write(x)
        return x.sum()

    for fn in (writes, door(writes)):
        x, w = torch.ones(2, 3), torch.ones(3, requires_grad=True)
        y = (w * x).sum()
        assert fn(x) == (12 if write is not row else 9)
        assert x._version > 0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


@WRITES
@BY_EACH_DOOR
def test_what_is_read_afterwards_has_the_gradient_of_the_new_values(door: Any, write: Any) -> None:
    def writes_and_reads(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        write(x)
        return (w * x).sum()

    def gradient(fn: Any) -> list[float]:
        w = torch.ones(3, requires_grad=True)
        fn(torch.ones(2, 3), w).backward()
        assert w.grad is not None
        return w.grad.tolist()

    assert gradient(door(writes_and_reads)) == gradient(writes_and_reads)
