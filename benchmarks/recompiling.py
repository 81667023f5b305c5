"""A job that compiles again and again, whose log the benchmark `explain` reads: `python -m benchmarks.recompiling
KIND COUNT` with TORCH_TRACE set to a folder.

The limits are raised, as people do whose job has reached them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch


def sizes(count: int) -> None:
    compiled = torch.compile(lambda x: (x * 2).sum(), backend="eager", dynamic=False)
    for size in range(2, count + 3):
        compiled(torch.ones(size))


def values(count: int) -> None:
    compiled = torch.compile(lambda x, factor: x * factor, backend="eager", dynamic=False)
    for factor in range(2, count + 3):
        compiled(torch.ones(3), factor)


class Named:
    name = ""


def attributes(count: int) -> None:
    named = Named()
    compiled = torch.compile(lambda x: x + len(named.name), backend="eager")
    for number in range(count + 1):
        named.name = f"step {number}"
        compiled(torch.ones(3))


def functions(count: int) -> None:
    """Many functions, each compiled again once."""
    for number in range(count):
        names: dict[str, Callable[..., object]] = {}
        exec(f"def scale_{number}(x, factor):\n    return x * factor", names)
        compiled = torch.compile(names[f"scale_{number}"], backend="eager", dynamic=False)
        for factor in (2, 3):
            compiled(torch.ones(3), factor)


def restarts(count: int) -> None:
    """Half of the recompiles start anew at a graph break, the other half are of what follows it."""

    def broken(x: torch.Tensor, factor: int) -> torch.Tensor:
        y = x * factor
        torch._dynamo.graph_break()
        return y + factor

    compiled = torch.compile(broken, backend="eager", dynamic=False)
    for factor in range(2, count // 2 + 3):
        compiled(torch.ones(3), factor)


KINDS = (sizes, values, attributes, functions, restarts)

if __name__ == "__main__":
    config = torch._dynamo.config
    config.recompile_limit = config.accumulated_recompile_limit = 1_000_000
    {kind.__name__: kind for kind in KINDS}[sys.argv[1]](int(sys.argv[2]))
