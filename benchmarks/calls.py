"""What one call costs beyond the compiled graph: our generated wrapper beside torch's runtime.

Both compile the same function with the same boxed compiler, whose graphs do nothing: they hand out results that were
computed once, when they were compiled. What remains is the wrapper: arguments in, autograd told, mutations written
back, views made again, results out. Eager is shown for scale; it does the arithmetic as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function as torch_aot_function
from torch.utils._python_dispatch import _disable_current_modes

import aotviz
from aotviz.frontends.functions import aot_function

from .measure import in_turns, ratio
from .results import Result, Row, result

SHAPE = (4, 4)


def stub(graph_module: Any, examples: Any) -> Callable[[list[Any]], list[Any]]:
    """A boxed compiler of graphs that do nothing: the results are computed now, on random inputs, and kept."""
    with torch.no_grad(), _disable_current_modes():  # torch compiles inside its fake mode
        kept = tuple(graph_module(*(torch.randn(x.shape, dtype=x.dtype) for x in examples)))

    def run(args: list[Any]) -> list[Any]:
        args.clear()
        return [*kept]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


@dataclass(frozen=True)
class Case:
    """`make` gives the function and its arguments. Repeats are calls in one measurement, some milliseconds of them."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    target: float | None
    backward: bool = False
    scale: float = 1.0  # of the number of repeats


def tensors(*requires_grad: bool) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(SHAPE, requires_grad=wanted) for wanted in requires_grad)


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * w).sin()


def with_counter(x: torch.Tensor, w: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    counter.add_(1)
    return (x * w).sin()


def with_input_view(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (x * w).sin(), x.view(-1)


def with_two_views(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * w
    return y.view(2, 8), y.t()


def many(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
    for parameter in parameters:
        x = x * parameter
    return x


def many_and_more(x: torch.Tensor, *parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    for parameter in parameters:
        x = x * parameter
    return x, x.sin()


CASES = (
    Case("inference", lambda: (product, tensors(False, False)), 0.6),
    Case("training forward", lambda: (product, tensors(True, True)), 0.4),
    Case("forward + backward", lambda: (product, tensors(True, True)), 0.6, backward=True, scale=0.4),
    Case("one input mutated", lambda: (with_counter, tensors(True, True, False)), 0.4, scale=0.6),
    Case("output is a view of an input", lambda: (with_input_view, tensors(True, True)), 0.4, scale=0.6),
    Case("outputs are views of an intermediate", lambda: (with_two_views, tensors(True, True)), 0.4, scale=0.6),
    Case("100 parameters, training forward", lambda: (many, tensors(*[True] * 101)), None, scale=0.15),
    Case(
        "100 parameters, backward of one of two results",
        lambda: (many_and_more, tensors(*[True] * 101)),
        1.0,
        backward=True,
        scale=0.1,
    ),
    Case("one input mutated, inference", lambda: (with_counter, tensors(False, False, False)), 0.4, scale=0.6),
)


def contestant(fn: Callable[..., Any], args: tuple[Any, ...], case: Case) -> Callable[[], object]:
    """A call of the case, warmed up: compiled, its backward too."""

    def forward() -> object:
        return fn(*args)

    wanted = [a for a in args if a.requires_grad]
    gradient = torch.ones_like(args[0], requires_grad=False)

    def both() -> object:
        found = fn(*args)
        return torch.autograd.grad(found if isinstance(found, torch.Tensor) else found[0], wanted, gradient)

    call = both if case.backward else forward
    for _ in range(3):
        call()
    return call


def measure(case: Case, rounds: int, repeats: int) -> Row:
    fn, args = case.make()
    calls = {
        "eager": contestant(fn, args, case),
        "torch": contestant(torch_aot_function(fn, stub), args, case),
        "ours": contestant(aot_function(fn, stub), args, case),
    }
    times = in_turns(calls, rounds, max(1, round(repeats * case.scale)), collecting=False)
    medians = {name: median(found) / 1000 for name, found in times.items()}
    return Row(case.name, ratio(times["ours"], times["torch"]), case.target, medians, "µs")


def behind_dynamo(name: str, requires_grad: bool, rounds: int, repeats: int) -> Row:
    """One call of what Dynamo compiles, its guards and its bytecode included: `aotviz.compile` and `torch.compile`."""
    case = Case(name, lambda: (product, tensors(requires_grad, requires_grad)), 1.0)
    args = case.make()[1]
    calls = {
        "eager": contestant(product, args, case),
        "torch": contestant(torch.compile(product, backend="aot_eager"), args, case),
        "ours": contestant(aotviz.compile(product, backend="eager"), args, case),
    }
    times = in_turns(calls, rounds, repeats, collecting=False)
    medians = {name: median(found) / 1000 for name, found in times.items()}
    return Row(case.name, ratio(times["ours"], times["torch"]), case.target, medians, "µs")


def run(rounds: int = 21, repeats: int = 300) -> Result:
    rows = [measure(case, rounds, repeats) for case in CASES]
    for name, requires_grad in (("aotviz.compile, inference", False), ("aotviz.compile, training forward", True)):
        rows.append(behind_dynamo(name, requires_grad, rounds, repeats))
    about = "CPU time of one call. Graphs are stubbed, which leaves the wrapper; eager, and what Dynamo calls, computes"
    return result("calls", about, "ours / torch", rows, {"rounds": rounds, "repeats": repeats})
