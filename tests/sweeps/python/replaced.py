"""Programs whose functions, methods and containers are replaced between two calls."""

from __future__ import annotations

import collections
import functools
import math
import operator
import sys
import types
from typing import NamedTuple

import torch

from .programs import program, x

# --- patched functions and methods ---


@program("patched", "method of an instance")
def _():
    class Held:
        def scale(self, t):
            return t * 2

    held = Held()
    yield lambda t: held.scale(t)
    yield (x(),)
    held.scale = lambda t: t * 3
    yield (x(),)


@program("patched", "method of a class")
def _():
    class Held:
        def scale(self, t):
            return t * 2

    held = Held()
    yield lambda t: held.scale(t)
    yield (x(),)
    Held.scale = lambda self, t: t * 3
    yield (x(),)


@program("patched", "forward of a submodule")
def _():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    yield model
    yield (x() - 3,)
    model[1].forward = lambda t: t * 5
    yield (x() - 3,)


@program("patched", "submodule replaced")
def _():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    yield model
    yield (x() - 3,)
    model[0] = torch.nn.Sigmoid()
    yield (x() - 3,)


@program("patched", "submodule added")
def _():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    yield model
    yield (x() - 3,)
    model.append(torch.nn.Sigmoid())
    yield (x() - 3,)


@program("patched", "forward hook added")
def _():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    yield model
    yield (x() - 3,)
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    yield (x() - 3,)


@program("patched", "hook removed")
def _():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    hook = model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    yield model
    yield (x() - 3,)
    hook.remove()
    yield (x() - 3,)


@program("patched", "module-level function")
def _():
    module = types.SimpleNamespace(act=torch.relu)
    sys.modules["sweep_acts"] = module
    yield lambda t: module.act(t - 3)
    yield (x(),)
    module.act = torch.tanh
    yield (x(),)


@program("patched", "torch.nn.functional.relu")
def _():
    yield lambda t: torch.nn.functional.relu(t - 3)
    before = torch.nn.functional.relu
    yield (x(),)
    torch.nn.functional.relu = lambda t: t * 10
    try:
        yield (x(),)
    finally:
        torch.nn.functional.relu = before


@program("patched", "math.sqrt")
def _():
    before = math.sqrt
    yield lambda t: t * math.sqrt(4.0)
    yield (x(),)
    math.sqrt = lambda value: 7.0
    try:
        yield (x(),)
    finally:
        math.sqrt = before


@program("patched", "built-in through globals")
def _():
    globals()["len"] = lambda value: 2
    yield lambda t: t * len(t)
    try:
        yield (x(),)
        globals()["len"] = lambda value: 5
        yield (x(),)
    finally:
        del globals()["len"]


@program("patched", "__code__ of a helper")
def _():
    def helper(t):
        return t + 1

    def other(t):
        return t * 4

    yield lambda t: helper(t)
    yield (x(),)
    helper.__code__ = other.__code__
    yield (x(),)


@program("patched", "class of an object")
def _():
    class One:
        def run(self, t):
            return t + 1

    class Two:
        def run(self, t):
            return t * 2

    held = One()
    yield lambda t: held.run(t)
    yield (x(),)
    held.__class__ = Two
    yield (x(),)


@program("patched", "base class gets a method")
def _():
    class Base:
        def run(self, t):
            return t + 1

    class Held(Base):
        pass

    held = Held()
    yield lambda t: held.run(t)
    yield (x(),)
    Held.run = lambda self, t: t * 6
    yield (x(),)


@program("patched", "operator function in a table")
def _():
    table = {"op": operator.add}
    yield lambda t: table["op"](t, 2)
    yield (x(),)
    table["op"] = operator.mul
    yield (x(),)


@program("patched", "decorator that reads a flag")
def _():
    flags = {"double": True}

    def doubled(function):
        @functools.wraps(function)
        def call(t):
            return function(t) * 2 if flags["double"] else function(t)

        return call

    yield doubled(lambda t: t + 1)
    yield (x(),)
    flags["double"] = False
    yield (x(),)


# --- containers ---


@program("container", "order of a dict")
def _():
    held = {"a": 1.0, "b": 2.0}
    yield lambda t: torch.stack([t * value for value in held.values()])
    yield (x(),)
    held["a"] = held.pop("a")
    yield (x(),)


@program("container", "keys of a dict")
def _():
    held = {"a": 1.0}
    yield lambda t: {key: t * value for key, value in held.items()}
    yield (x(),)
    held["c"] = 3.0
    yield (x(),)


@program("container", "OrderedDict moved")
def _():
    held = collections.OrderedDict(a=1, b=2)
    yield lambda t: t * next(iter(held.values()))
    yield (x(),)
    held.move_to_end("a")
    yield (x(),)


@program("container", "defaultdict")
def _():
    held: dict[str, int] = collections.defaultdict(lambda: 3)
    yield lambda t: t * held["a"]
    yield (x(),)
    held["a"] = 4
    yield (x(),)
    return dict(held)


@program("container", "Counter")
def _():
    held = collections.Counter(a=2)
    yield lambda t: t * held["a"]
    yield (x(),)
    held["a"] += 1
    yield (x(),)


@program("container", "ChainMap")
def _():
    first: dict[str, int] = {}
    held = collections.ChainMap(first, {"a": 2})
    yield lambda t: t * held["a"]
    yield (x(),)
    first["a"] = 5
    yield (x(),)


@program("container", "namedtuple replaced")
def _():
    class Pair(NamedTuple):
        a: int
        b: float

    held = types.SimpleNamespace(pair=Pair(1, 0.5))
    yield lambda t: t * held.pair.a + held.pair.b
    yield (x(),)
    held.pair = held.pair._replace(b=2.5)
    yield (x(),)


@program("container", "frozenset")
def _():
    held = types.SimpleNamespace(names=frozenset({"a"}))
    yield lambda t: t.sin() if "b" in held.names else t.cos()
    yield (x(),)
    held.names = frozenset({"a", "b"})
    yield (x(),)


@program("container", "range")
def _():
    held = types.SimpleNamespace(steps=range(2))
    yield lambda t: sum(t * k for k in held.steps)
    yield (x(),)
    held.steps = range(4)
    yield (x(),)


@program("container", "nested list element")
def _():
    held = [[1, [2.0, 3.0]], 4]
    yield lambda t: t * held[0][1][1]
    yield (x(),)
    held[0][1][1] = 7.0
    yield (x(),)


@program("container", "list of tensors shrinks")
def _():
    held = [torch.ones(3), torch.ones(3) * 2]
    yield lambda t: t + sum(held)
    yield (x(),)
    held.pop()
    yield (x(),)


@program("container", "tensor in a dict changed in place")
def _():
    held = {"w": torch.ones(3)}
    yield lambda t: t * held["w"]
    yield (x(),)
    held["w"].fill_(4)
    yield (x(),)


@program("container", "ParameterList")
def _():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.ones(3)])

        def forward(self, t):
            return t * sum(self.weights)

    model = Model()
    yield model
    yield (x(),)
    model.weights.append(torch.nn.Parameter(torch.ones(3) * 3))
    yield (x(),)
