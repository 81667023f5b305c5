"""Small training programs, compiled one after another with one cache, in a process that may be killed."""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

PROGRAMS = 16
STEPS: list[Callable[[Any], Any]] = [torch.sin, torch.exp, torch.tanh, torch.sigmoid, torch.cos]


def program(number: int) -> Callable[..., Any]:
    """A function that differs from those with other numbers."""
    chance = random.Random(number)
    steps = [chance.choice(STEPS) for _ in range(3)]

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        for step in steps:
            y = step(y) * (number + 1)
        return y.sum()

    return f


def results(f: Callable[..., Any]) -> list[torch.Tensor]:
    x, w = (torch.linspace(-1, 1, 4).reshape(2, 2).requires_grad_() for _ in range(2))
    loss = f(x, w)
    loss.backward()
    assert x.grad is not None
    assert w.grad is not None
    return [loss.detach(), x.grad, w.grad]


def work(folder: str, told: Path, numbers: Sequence[int], url: str = "", go_on: Any = None) -> None:
    """Compile the programs, and write a line of JSON for each to `told`. In the middle, wait for an event."""
    os.environ["AOTVIZ_CACHE_URL"] = url
    import aotviz

    torch.set_num_threads(1)
    with told.open("a", buffering=1) as out:
        for place, number in enumerate(numbers):
            if place == len(numbers) // 2 and go_on is not None:
                go_on.wait()
            torch._dynamo.reset()
            with warnings.catch_warnings(record=True) as caught, aotviz.record() as recording:
                warnings.simplefilter("always")
                found = results(aotviz.compile(program(number), backend="eager", cache=folder))
            equal = all(map(torch.allclose, found, results(program(number))))
            said = [str(one.message) for one in caught if "cache" in str(one.message)]
            outcomes = list(recording.cache_lookups["outcome"])
            print(json.dumps({"number": number, "equal": equal, "outcomes": outcomes, "said": said}), file=out)
