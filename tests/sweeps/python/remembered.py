"""Programs that read the environment or a cache, or change what they read: counters, lists, buffers."""

from __future__ import annotations

import collections
import functools
import itertools
import os
import sys
import types
from typing import Any

import torch

from .programs import program, x

COUNT = 0


# --- environment and interpreter ---


@program("environment", "os.environ[...]")
def _():
    os.environ["SWEEP_SCALE"] = "2"
    yield lambda t: t * float(os.environ["SWEEP_SCALE"])
    yield (x(),)
    os.environ["SWEEP_SCALE"] = "3"
    yield (x(),)


@program("environment", "os.getenv")
def _():
    os.environ["SWEEP_MODE"] = "a"
    yield lambda t: t.sin() if os.getenv("SWEEP_MODE") == "a" else t.cos()
    yield (x(),)
    os.environ["SWEEP_MODE"] = "b"
    yield (x(),)


@program("environment", "a key that goes")
def _():
    os.environ["SWEEP_FLAG"] = "1"
    yield lambda t: t + 1 if "SWEEP_FLAG" in os.environ else t - 1
    yield (x(),)
    del os.environ["SWEEP_FLAG"]
    yield (x(),)


@program("environment", "working directory")
def _():
    yield lambda t: t * len(os.getcwd())
    yield (x(),)
    before = os.getcwd()
    os.chdir("/")
    yield (x(),)
    os.chdir(before)


@program("environment", "sys.modules attribute")
def _():
    sys.modules["sweep_fake"] = types.SimpleNamespace(scale=2)
    yield lambda t: t * sys.modules["sweep_fake"].scale
    yield (x(),)
    sys.modules["sweep_fake"] = types.SimpleNamespace(scale=3)
    yield (x(),)


# --- caches ---


@program("cache", "lru_cache over an int")
def _():
    @functools.lru_cache
    def table(n):
        return n * 2

    size = types.SimpleNamespace(n=2)
    yield lambda t: t * table(size.n)
    yield (x(),)
    size.n = 3
    yield (x(),)


@program("cache", "lru_cache of a tensor")
def _():
    @functools.lru_cache
    def table(n):
        return torch.arange(n).float()

    yield lambda t: t + table(t.shape[1])
    yield (x(),)
    yield (torch.ones(2, 4),)
    return table(3) + 1


@program("cache", "cached_property")
def _():
    class Held:
        scale = 2

        @functools.cached_property
        def value(self):
            return self.scale * 2

    held = Held()
    yield lambda t: t * held.value
    yield (x(),)
    held.scale = 5
    yield (x(),)
    del held.value
    yield (x(),)


@program("cache", "dict filled by a helper")
def _():
    known: dict[int, torch.Tensor] = {}

    def table(n):
        if n not in known:
            known[n] = torch.arange(n).float()
        return known[n]

    yield lambda t: t + table(t.shape[1])
    yield (x(),)
    yield (torch.ones(2, 4),)
    return sorted(known), [known[key] + 1 for key in sorted(known)]


@program("cache", "attribute set at the first call")
def _():
    class Lazy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = None

        def forward(self, t):
            if self.table is None or self.table.shape[0] != t.shape[1]:
                self.table = torch.arange(t.shape[1]).float()
            return t + self.table

    lazy = Lazy()
    yield lazy
    yield (x(),)
    yield (torch.ones(2, 4),)
    return lazy.table + 1


@program("cache", "hasattr at the first call")
def _():
    class Lazy:
        def __call__(self, t):
            if not hasattr(self, "scale"):
                self.scale = 3
            return t * self.scale

    lazy = Lazy()
    yield lambda t: lazy(t)
    yield (x(),)
    lazy.scale = 4
    yield (x(),)
    del lazy.scale
    yield (x(),)
    return lazy.scale


# --- counters and state that the call changes ---


@program("state", "global counter")
def _():
    globals()["COUNT"] = 0

    def function(t):
        global COUNT
        COUNT += 1
        return t * COUNT

    yield function
    for _ in range(3):
        yield (x(),)
    return COUNT


@program("state", "counter on a module")
def _():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 0

        def forward(self, t):
            self.step += 1
            return t * self.step

    module = Counting()
    yield module
    for _ in range(3):
        yield (x(),)
    return module.step


@program("state", "closure counter")
def _():
    count = 0

    def function(t):
        nonlocal count
        count += 2
        return t + count

    yield function
    for _ in range(3):
        yield (x(),)
    return count


@program("state", "list that grows")
def _():
    seen: list[Any] = []

    def function(t):
        seen.append(t.shape[0])
        return t * len(seen)

    yield function
    for _ in range(3):
        yield (x(),)
    return seen


@program("state", "list of results")
def _():
    kept: list[torch.Tensor] = []

    def function(t):
        kept.append(t * 2)
        return t + len(kept)

    yield function
    for _ in range(2):
        yield (x(),)
    return kept


@program("state", "dict that is written")
def _():
    stats: dict[str, Any] = {}

    def function(t):
        stats["sum"] = t.sum()
        stats["calls"] = stats.get("calls", 0) + 1
        return t * stats["calls"]

    yield function
    for _ in range(3):
        yield (x(),)
    return stats


@program("state", "deque with a length")
def _():
    window: collections.deque[Any] = collections.deque(maxlen=2)

    def function(t):
        window.append(t.sum())
        return t * len(window)

    yield function
    for _ in range(3):
        yield (x(),)
    return list(window)


@program("state", "buffer that is updated")
def _():
    class Running(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, t):
            self.mean.mul_(0.9).add_(t.mean(0), alpha=0.1)
            return t - self.mean

    module = Running()
    yield module
    for _ in range(3):
        yield (x(),)
    return module.mean


@program("state", "buffer that is replaced")
def _():
    class Running(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(2, 3))

        def forward(self, t):
            found = t + self.last
            self.last = t * 2
            return found

    module = Running()
    yield module
    for _ in range(3):
        yield (x(),)
    return module.last


@program("state", "iterator")
def _():
    numbers = iter([1, 2, 3, 4])
    yield lambda t: t * next(numbers)
    yield (x(),)
    yield (x(),)
    return next(numbers)


@program("state", "itertools.count")
def _():
    numbers = itertools.count(1)
    yield lambda t: t * next(numbers)
    yield (x(),)
    yield (x(),)
    return next(numbers)


@program("state", "generator")
def _():
    def counting():
        n = 1
        while True:
            yield n
            n += 1

    numbers = counting()
    yield lambda t: t * next(numbers)
    yield (x(),)
    yield (x(),)
    return next(numbers)


@program("state", "attribute that is deleted")
def _():
    held = types.SimpleNamespace(once=3)

    def function(t):
        if hasattr(held, "once"):
            found = t * held.once
            del held.once
            return found
        return t

    yield function
    yield (x(),)
    yield (x(),)
    return vars(held)
