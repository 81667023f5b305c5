"""What the cache costs a program that it does not have: the key, the look-up, and saving what was compiled.

    python -m benchmarks cache_miss

CPU time of a GPT-2's first training step on Inductor, each in a process of its own with empty caches. The figure is the
share of that time that is spent in the cache, which each process measures itself: two compilations differ by more than
that from one run to the next. The step without the cache stands beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from .results import Result, Row, result
from .warm_start import process

LAYERS = (4, 12)
TARGET = 0.03


def measured(layers: int, rounds: int, model: str = "GPT-2") -> dict[str, float]:
    """Median CPU seconds: of a step with the cache and without, and of that with it, in the cache."""
    whole: dict[str, list[float]] = {"cached": [], "uncached": []}
    spent = []
    for _ in range(rounds):
        for side, who in (("cached", "ours"), ("uncached", "uncached")):
            with tempfile.TemporaryDirectory() as folder:
                ran = process(who, layers, model, Path(folder), "first")
            whole[side].append(ran.seconds)
            spent += [ran.in_cache] if who == "ours" else []
    return {side: median(times) for side, times in whole.items()} | {"in the cache": median(spent)}


def run(rounds: int = 3, layers: Sequence[int] = LAYERS, model: str = "GPT-2") -> Result:
    rows = []
    for count in layers:
        found = measured(count, rounds, model)
        share = found["in the cache"] / found["cached"]
        rows.append(Row(f"{model} of {count} layers", share, TARGET, found, "s"))
    about = (
        "CPU time of a first training step on Inductor with empty caches, and the part of it spent in aotviz's cache"
    )
    return result("cache_miss", about, "in the cache / all", rows, {"rounds": rounds})
