"""What a compiled function keeps alive: nodes of graphs, fake tensors and functional tensors, ours beside torch's.

    python -m benchmarks memory

A function of 100 operators is compiled by either side and called, and its backward is run; nobody records it. Then
garbage is collected and objects are counted. A compiled graph needs its nodes where a compiler runs it as it is, which
the compiler here does; what is beyond that is kept in case something else is asked for, such as a second derivative.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch._functorch.aot_autograd import aot_function as torch_aot_function
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from aotviz.frontends.functions import aot_function

from .results import Result, Row, result

KINDS = {"nodes": fx.Node, "fake tensors": FakeTensor, "functional tensors": FunctionalTensor}
TARGETS = {"nodes": 1.0, "functional tensors": 1.0}  # one fake is kept for each argument, to trace it again
OPERATORS = 100
Function = Callable[..., Any]


def as_it_is(graph_module: Any, _examples: Any) -> Any:
    """A compiler that runs the graph itself."""
    return graph_module


@dataclass(frozen=True)
class Case:
    name: str
    ours: Callable[[Function], Function]
    torch: Callable[[Function], Function]
    trains: bool = True


CASES = (
    Case(
        "aot_function, forward and backward",
        lambda fn: aot_function(fn, as_it_is, record=False),
        lambda fn: torch_aot_function(fn, as_it_is),
    ),
    Case(
        "torch.compile (aot_eager), forward and backward",
        lambda fn: torch.compile(fn, backend="aotviz_eager", options={"record": False}),
        lambda fn: torch.compile(fn, backend="aot_eager"),
    ),
    Case(
        "aot_function, inference",
        lambda fn: aot_function(fn, as_it_is, record=False),
        lambda fn: torch_aot_function(fn, as_it_is),
        trains=False,
    ),
)


def alive() -> Counter[str]:
    gc.collect()
    found = Counter(map(type, gc.get_objects()))
    return Counter({name: found[kind] for name, kind in KINDS.items()})


def kept(compiles: Callable[[Function], Function], operators: int, trains: bool) -> Counter[str]:
    """What is alive once a function was compiled and called, and was not before."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(operators // 2):
            x = (x * w).sin()
        return x

    inputs = [torch.randn(4, 4, requires_grad=trains) for _ in range(2)]
    before = alive()
    compiled = compiles(fn)
    out = compiled(*inputs)
    if trains:
        out.sum().backward()
    del out
    found = alive()
    return Counter({name: found[name] - before[name] for name in KINDS})


def measure(case: Case, operators: int) -> list[Row]:
    for side in (case.ours, case.torch):
        kept(side, 2, case.trains)  # what is made once
        torch._dynamo.reset()
    ours, theirs = kept(case.ours, operators, case.trains), kept(case.torch, operators, case.trains)
    return [
        Row(
            f"{case.name}: {name}",
            ours[name] / max(theirs[name], 1),
            TARGETS[name] * min(1, theirs[name]) if name in TARGETS else None,
            {"torch": theirs[name], "ours": ours[name]},
            "alive",
        )
        for name in KINDS
    ]


def run(operators: int = OPERATORS) -> Result:
    rows = [row for case in CASES for row in measure(case, operators)]
    about = f"Objects that a function of {operators} operators keeps alive when it was compiled and called"
    return result("memory", about, "ours / torch (at least 1)", rows, {"operators": operators})
