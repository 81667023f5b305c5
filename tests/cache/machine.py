"""Programs on a machine of their own, which has its own folders: `python -m tests.cache.machine BACKEND`.

Prints one line of JSON: the cache's answer, whether the result is eager's, and how long the first call and its backward
took. `tests.cache.three_machines` runs it on several.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import torch
from torch._dynamo.utils import counters

from aotviz.frontends import backend as backends


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.layer_norm((x @ w).relu(), (8,))
    return (y.softmax(-1) * 2.5).square().sum()


def gradient(fn: Any) -> list[torch.Tensor]:
    x, w = torch.linspace(-1, 1, 64).reshape(8, 8), torch.linspace(0, 1, 64).reshape(8, 8).requires_grad_()
    loss = fn(x, w)
    loss.backward()
    assert w.grad is not None
    return [loss.detach(), w.grad]


def main() -> None:
    torch.set_num_threads(1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        began = time.perf_counter()
        found = gradient(torch.compile(step, backend=sys.argv[1]))
        seconds = time.perf_counter() - began
    lookups = backends.recent().cache_lookups
    ours = lookups[lookups["cache"] == "aotviz"]
    line = {
        "outcome": ours["outcome"].iloc[-1],
        "equal": all(torch.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in zip(found, gradient(step), strict=True)),
        "seconds": round(seconds, 2),
        "loaded": counters["inductor"]["fxgraph_cache_hit"],
        "told": [str(one.message) for one in told if "cache" in str(one.message)],
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
