"""Programs that are compiled in one process, saved to a file, and called in another, and what each process finds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import aotviz
from tests.cache.kept_by_dynamo import Scaled


def train(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x.mul_(2)
    return (x @ w).relu().sum(), x[:2]


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + y


def custom(x: torch.Tensor) -> torch.Tensor:
    return Scaled.apply(x.sin()).sum()


def cube(x: torch.Tensor) -> torch.Tensor:
    return (x**3).sum()


def sizes(x: torch.Tensor, n: int) -> torch.Tensor:
    return (x.sin() * x.shape[0] + n).sum()


def _train(run: Callable[..., Any]) -> Iterator[Any]:
    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    for _ in range(2):
        loss, head = run(x, w)
        loss.backward()
        yield from (loss, head, x, w.grad, head._base is x)


def _memory(run: Callable[..., Any]) -> Iterator[Any]:
    base = torch.randn(6)
    for x, y in ((torch.ones(4), torch.ones(4)), (base[:4], base[1:5]), (base[:4], base[:4]), (base[1:5], base[:4])):
        if x is not y:
            yield from (run(x, y), base)


def _second(run: Callable[..., Any]) -> Iterator[Any]:
    x = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad(run(x), x, create_graph=True)
    yield from (first, *torch.autograd.grad(first.sum(), x))


def _one(run: Callable[..., Any]) -> Iterator[Any]:
    x = torch.randn(3, requires_grad=True)
    y = run(x)
    y.backward()
    yield from (y, x.grad)


def _sizes(run: Callable[..., Any]) -> Iterator[Any]:
    for n in (4, 7, 9):
        x = torch.randn(n, 3, requires_grad=True)
        y = run(x, n + 1)
        y.backward()
        yield from (y, x.grad)


def _examples(*sizes: int, grad: int = 0) -> tuple[Any, ...]:
    return tuple(torch.ones(size, requires_grad=i < grad) for i, size in enumerate(sizes))


# name: (function, the arguments that it is compiled for, dynamic, what is called)
CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], bool, Callable[..., Iterator[Any]]]] = {
    "training": (train, lambda: (torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)), False, _train),
    "memory": (writes, lambda: _examples(4, 4), False, _memory),
    "custom Function": (custom, lambda: _examples(3, grad=1), False, _one),
    "second derivative": (cube, lambda: _examples(3, grad=1), False, _second),
    "sizes": (sizes, lambda: (torch.ones(5, 3, requires_grad=True), 6), True, _sizes),
}


def save(folder: str, answer: str, backend: str, cases: list[str]) -> None:
    """Compile and save cases, and call them."""

    def made(name: str) -> Any:
        fn, examples, dynamic, _ = CASES[name]
        compiled = torch.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic or None)
        function = compiled.aot_compile((examples(), {}))
        function.save_compiled_function(f"{folder}/{name}.bin")
        return function

    _call(made, answer, cases)


def load(folder: str, answer: str, backend: str, cases: list[str]) -> None:
    """Load cases that another process has saved, and call them."""

    def made(name: str) -> Any:
        with open(f"{folder}/{name}.bin", "rb") as file:
            return torch.compiler.load_compiled_function(file)

    _call(made, answer, cases)


def _call(made: Callable[[str], Any], answer: str, cases: list[str]) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{answer}.inductor"
    found: dict[str, dict[str, Any]] = {}
    for name in cases:
        fn, _, _, call = CASES[name]
        with aotviz.record() as recording:
            function = made(name)
            torch.manual_seed(1)
            expected = [_copy(one) for one in call(fn)]
            torch.manual_seed(1)
            given = [_copy(one) for one in call(function)]
        torch.testing.assert_close(given, expected)
        lookups, stages = recording.cache_lookups, [one.stages for one in recording.compilations]
        found[name] = {
            "outcomes": list(lookups["outcome"]) if len(lookups) else [],
            "run": [
                [str(row.stage) for row in one.itertuples() if not row.replayed and row.stage != "dynamo"]
                for one in stages
            ],
            "explained": str(recording.explain()),
            "text": str(recording),
        }
    Path(answer).write_text(json.dumps(found))


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
