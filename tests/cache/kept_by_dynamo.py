"""Programs whose Dynamo part is kept for the next process, and what a process finds when it runs them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters

import aotviz

SCALE = 2.0


def train(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.nn.functional.linear(x, w, b).relu()
    b.add_(0.5)
    return y.sum(), y[0]


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * y


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() * torch.arange(x.shape[0])
    torch._dynamo.graph_break()
    return y * y.exp() * SCALE


def cube(x: torch.Tensor) -> torch.Tensor:
    return (x**3).sum()


def with_float(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x * scale


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 2 + x * 0


@torch._dynamo.allow_in_graph
def users(x: torch.Tensor) -> torch.Tensor:
    return x.cos() * 2


def calls_users(x: torch.Tensor) -> torch.Tensor:
    return users(x) + 1


def custom(x: torch.Tensor) -> torch.Tensor:
    return Scaled.apply(x.sin()).sum()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(self.inside(x))


def _gradients(run: Callable[..., Any]) -> list[Any]:
    x, w, b = torch.randn(4, 3), torch.randn(5, 3, requires_grad=True), torch.zeros(5)
    loss, row = run(x, w, b)
    loss.backward()
    return [loss, row, w.grad, b]


def _sizes(run: Callable[..., Any]) -> list[Any]:
    return [run(torch.randn(n, 3), torch.randn(5, 3), torch.zeros(5))[1] for n in (4, 6, 8)]


def _memory(run: Callable[..., Any]) -> list[Any]:
    base, other = torch.randn(6), torch.randn(4)
    return [run(torch.ones(4), other), run(base[:4], base[2:]), base, run(base[:4], other)]


def _twice(run: Callable[..., Any]) -> list[Any]:
    x = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad(run(x), x, create_graph=True)
    return [first, *torch.autograd.grad(first.sum(), x)]


def _one(run: Callable[..., Any], dtype: torch.dtype = torch.float32) -> list[Any]:
    x = torch.randn(3, requires_grad=True, dtype=dtype)
    y = run(x).sum()
    y.backward()
    return [y, x.grad]


def _number(run: Callable[..., Any]) -> list[Any]:
    return [run(torch.randn(3), scale) for scale in (1.5, 2.5, 3.5)]


def _batch(run: Callable[..., Any]) -> list[Any]:
    x = torch.randn(8, 4, requires_grad=True)
    run(x).sum().backward()
    return [x.grad, run(x)]


CASES: dict[str, tuple[Callable[[], Any], Callable[[Callable[..., Any]], list[Any]]]] = {
    "gradients": (lambda: train, _gradients),
    "memory": (lambda: writes, _memory),
    "graph break": (lambda: broken, _one),
    "second derivative": (lambda: cube, _twice),
    "custom Function": (lambda: custom, _one),
    "float": (lambda: with_float, _number),
    "module": (Block, _batch),
}
ALONE = {
    "sizes": (lambda: train, _sizes),
    "user's function": (lambda: calls_users, _one),
    "graph break in double precision": (lambda: broken, partial(_one, dtype=torch.float64)),
}


def run(folder: str, answer: str, cases: list[str], setup: str = "", **options: Any) -> None:
    """Run cases with Dynamo's cache in `folder`, and write what was found to the file `answer`."""
    os.environ.update(TORCHINDUCTOR_CACHE_DIR=f"{folder}/torch", AOTVIZ_CACHE_DIR=f"{folder}/aotviz")
    torch._dynamo.config.caching_precompile = True
    exec(setup, {"torch": torch, "aotviz": aotviz})
    found = {name: _ran(*{**CASES, **ALONE}[name], options) for name in cases}
    torch.compiler.save_cache_artifacts()
    Path(answer).write_text(json.dumps(found))


def _ran(
    make: Callable[[], Any], call: Callable[[Callable[..., Any]], list[Any]], options: dict[str, Any]
) -> dict[str, Any]:
    torch.manual_seed(0)
    fn = make()
    torch.manual_seed(1)
    expected = call(fn)
    torch.manual_seed(0)
    fn = make()
    before = counters["stats"]["unique_graphs"]
    backend = options.get("backend", "aotviz_eager")
    with aotviz.record() as recording, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if backend == "aotviz.compile":
            compiled = aotviz.compile(fn, backend="eager", debug=options.get("debug", False))
        else:
            compiled = torch.compile(fn, backend=backend)
        torch.manual_seed(1)
        given = call(compiled)
    torch.testing.assert_close(given, expected)
    lookups = recording.cache_lookups
    return {
        "captured": counters["stats"]["unique_graphs"] - before,
        "outcomes": list(lookups["outcome"]) if len(lookups) else [],
        "names": [one.name for one in recording.compilations],
        "text": str(recording),
        "warnings": [str(one.message) for one in warned],
        "kept": [
            row.reason
            for one in recording.compilations
            for row in one.evidence.itertuples()
            if row.subject == "Dynamo's cache"
        ],
    }
