"""Programs that depend on torch's settings, on random numbers, or on what decides their way."""

from __future__ import annotations

import contextlib
import functools
import random
import types
from typing import Any

import numpy as np
import torch

from .programs import program, x

STEPS: list[float] = []
REGISTRY: dict[str, Any] = {}
TABLE = torch.ones(3)


# --- torch's own settings ---


@program("mode", "grad mode")
def _():
    w = torch.ones(3, requires_grad=True)
    yield lambda t: (t * w, torch.is_grad_enabled())
    yield (x(),)
    with torch.no_grad():
        yield (x(),)


@program("mode", "train and eval")
def _():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.0))
    yield model
    yield (x(),)
    model.eval()
    yield (x(),)
    return model[0].running_mean


@program("mode", "default dtype")
def _():
    yield lambda t: (t + 1, torch.ones(3) * 2)
    yield (x(),)
    torch.set_default_dtype(torch.float64)
    try:
        yield (x(),)
    finally:
        torch.set_default_dtype(torch.float32)


@program("mode", "autocast")
def _():
    yield lambda t: t @ t.T
    yield (x(),)
    with torch.autocast("cpu", torch.bfloat16):
        yield (x(),)


@program("mode", "deterministic algorithms")
def _():
    yield lambda t: t.sin() if torch.are_deterministic_algorithms_enabled() else t.cos()
    yield (x(),)
    torch.use_deterministic_algorithms(True)
    try:
        yield (x(),)
    finally:
        torch.use_deterministic_algorithms(False)


@program("mode", "number of threads")
def _():
    before = torch.get_num_threads()
    yield lambda t: t * torch.get_num_threads()
    yield (x(),)
    torch.set_num_threads(before + 1)
    try:
        yield (x(),)
    finally:
        torch.set_num_threads(before)


@program("mode", "default device")
def _():
    yield lambda t: (t + 1, torch.zeros(2).device.type)
    yield (x(),)
    with torch.device("meta"):
        yield (torch.ones(2, 3, device="cpu"),)


@program("mode", "inference mode")
def _():
    yield lambda t: (t * 2, torch.is_inference_mode_enabled())
    yield (x(),)
    with torch.inference_mode():
        yield (x(),)


@program("mode", "parameter frozen")
def _():
    model = torch.nn.Linear(3, 3, bias=False)
    torch.nn.init.ones_(model.weight)
    yield model
    yield (x(),)
    model.weight.requires_grad_(False)
    yield (x(),)


@program("mode", "parameter's data replaced")
def _():
    model = torch.nn.Linear(3, 3, bias=False)
    model.weight.data = torch.eye(3)
    yield model
    yield (x(),)
    model.weight.data = torch.eye(3) * 3
    yield (x(),)
    model.weight = torch.nn.Parameter(torch.eye(3) * 5)
    yield (x(),)


@program("mode", "parameter's dtype")
def _():
    model = torch.nn.Linear(3, 3, bias=False)
    model.weight.data = torch.eye(3)
    yield model
    yield (x(),)
    model.double()
    yield (x().double(),)


@program("mode", "tied and untied weights")
def _():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Parameter(torch.eye(3))
            self.two = self.one

        def forward(self, t):
            return t @ self.one @ self.two

    model = Tied()
    yield model
    yield (x(),)
    model.two = torch.nn.Parameter(torch.eye(3) * 2)
    yield (x(),)


# --- randomness ---


@program("random", "torch's generator")
def _():
    yield lambda t: t + torch.rand(3)
    for seed in (1, 2):
        torch.manual_seed(seed)
        yield (x(),)
    return torch.rand(1)


@program("random", "Python's random")
def _():
    yield lambda t: t * random.random()
    for seed in (1, 2):
        random.seed(seed)
        yield (x(),)
    return random.random()


@program("random", "random.Random of its own")
def _():
    own = random.Random(3)
    yield lambda t: t * own.random()
    yield (x(),)
    yield (x(),)
    return own.random()


@program("random", "random.choice of a branch")
def _():
    yield lambda t: t.sin() if random.choice([True, False]) else t.cos()
    for seed in (1, 5, 2):
        random.seed(seed)
        yield (x(),)


@program("random", "NumPy's random")
def _():
    yield lambda t: t * float(np.random.rand())
    for seed in (1, 2):
        np.random.seed(seed)
        yield (x(),)
    return float(np.random.rand())


@program("random", "NumPy generator of its own")
def _():
    own = np.random.default_rng(3)
    yield lambda t: t * own.random()
    yield (x(),)
    yield (x(),)
    return own.random()


# --- control flow around the compiled part ---


@program("flow", "context manager that reads a flag")
def _():
    flags = {"scale": 2}

    @contextlib.contextmanager
    def scaled():
        yield flags["scale"]

    def function(t):
        with scaled() as scale:
            return t * scale

    yield function
    yield (x(),)
    flags["scale"] = 3
    yield (x(),)


@program("flow", "exception by a flag")
def _():
    flags = {"strict": False}

    def function(t):
        if flags["strict"]:
            raise ValueError("strict")
        return t * 2

    yield function
    yield (x(),)
    flags["strict"] = True
    yield (x(),)


@program("flow", "try and except around a look-up")
def _():
    held: dict[str, int] = {}

    def function(t):
        try:
            return t * held["scale"]
        except KeyError:
            return t

    yield function
    yield (x(),)
    held["scale"] = 3
    yield (x(),)


@program("flow", "graph break in the middle")
def _():
    held = types.SimpleNamespace(scale=2, said=[])

    def function(t):
        t = t * held.scale
        held.said.append(float(t.sum()))
        return t + held.scale

    yield function
    yield (x(),)
    held.scale = 4
    yield (x(),)
    return held.said


@program("flow", "registry of functions")
def _():
    REGISTRY.clear()
    REGISTRY["act"] = torch.relu
    yield lambda t: [function(t - 3) for function in REGISTRY.values()]
    yield (x(),)
    REGISTRY["out"] = torch.tanh
    yield (x(),)


@program("flow", "global list of numbers")
def _():
    STEPS[:] = [1.0, 2.0]
    yield lambda t: sum(t * step for step in STEPS)
    yield (x(),)
    STEPS.append(0.5)
    yield (x(),)


@program("flow", "global tensor rebound")
def _():
    globals()["TABLE"] = torch.ones(3)
    yield lambda t: t + TABLE
    yield (x(),)
    globals()["TABLE"] = torch.ones(3) * 4
    yield (x(),)


@program("flow", "reduce over functions")
def _():
    chain = [torch.sin, torch.cos]
    yield lambda t: functools.reduce(lambda value, function: function(value), chain, t)
    yield (x(),)
    chain.reverse()
    yield (x(),)


@program("flow", "zip and enumerate")
def _():
    names = ["a", "b"]
    yield lambda t: {name: t * k for k, name in enumerate(names)}
    yield (x(),)
    names[0] = "c"
    yield (x(),)


@program("flow", "sorted by a key that changes")
def _():
    weights = {"a": 2, "b": 1}
    yield lambda t: torch.stack([t * weights[name] for name in sorted(weights, key=weights.get)])
    yield (x(),)
    weights["a"] = 0
    yield (x(),)


@program("flow", "format of a number")
def _():
    held = types.SimpleNamespace(n=2)
    yield lambda t: t * len(f"{held.n:05d}{held.n}")
    yield (x(),)
    held.n = 123456
    yield (x(),)


@program("flow", "while over an attribute")
def _():
    held = types.SimpleNamespace(limit=2)

    def function(t):
        k = 0
        while k < held.limit:
            t = t.sin()
            k += 1
        return t

    yield function
    yield (x(),)
    held.limit = 4
    yield (x(),)


@program("flow", "recursion depth")
def _():
    def nested(t, depth):
        return t if depth == 0 else nested(t.cos(), depth - 1)

    held = types.SimpleNamespace(depth=1)
    yield lambda t: nested(t, held.depth)
    yield (x(),)
    held.depth = 3
    yield (x(),)
