"""Programs that ask a class by its protocols, and those whose other arguments change."""

from __future__ import annotations

import abc
import copy
import types
import weakref

import numpy as np
import torch

from .programs import Colour, Level, program, x

# --- classes and their protocols ---


@program("class", "__len__")
def _():
    class Held:
        n = 2

        def __len__(self):
            return self.n

    held = Held()
    yield lambda t: t * len(held)
    yield (x(),)
    held.n = 3
    yield (x(),)


@program("class", "__bool__")
def _():
    class Held:
        on = True

        def __bool__(self):
            return self.on

    held = Held()
    yield lambda t: t.sin() if held else t.cos()
    yield (x(),)
    held.on = False
    yield (x(),)


@program("class", "__getattr__")
def _():
    class Held:
        def __init__(self):
            self.values = {"scale": 2}

        def __getattr__(self, name):
            return self.__dict__["values"][name]

    held = Held()
    yield lambda t: t * held.scale
    yield (x(),)
    held.values["scale"] = 6
    yield (x(),)


@program("class", "__getitem__")
def _():
    class Held:
        base = 1

        def __getitem__(self, index):
            return self.base + index

    held = Held()
    yield lambda t: t * held[2]
    yield (x(),)
    held.base = 5
    yield (x(),)


@program("class", "__eq__")
def _():
    class Held:
        kind = "a"

        def __eq__(self, other):
            return self.kind == other

        __hash__ = None

    held = Held()
    yield lambda t: t.sin() if held == "a" else t.cos()
    yield (x(),)
    held.kind = "b"
    yield (x(),)


@program("class", "descriptor")
def _():
    class Scaled:
        def __get__(self, owner, kind=None):
            return owner.raw * 2

    class Held:
        value = Scaled()
        raw = 1

    held = Held()
    yield lambda t: t * held.value
    yield (x(),)
    held.raw = 3
    yield (x(),)


@program("class", "classmethod's cls attribute")
def _():
    class Held:
        scale = 2

        @classmethod
        def run(cls, t):
            return t * cls.scale

    yield lambda t: Held.run(t)
    yield (x(),)
    Held.scale = 3
    yield (x(),)


@program("class", "isinstance")
def _():
    class One:
        pass

    class Two(One):
        pass

    held = types.SimpleNamespace(item=One())
    yield lambda t: t.sin() if isinstance(held.item, Two) else t.cos()
    yield (x(),)
    held.item = Two()
    yield (x(),)


@program("class", "abstract class registered")
def _():
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Square:
        pass

    held = Square()
    yield lambda t: t.sin() if isinstance(held, Shape) else t.cos()
    yield (x(),)
    Shape.register(Square)
    yield (x(),)


@program("class", "enum member's value")
def _():
    held = types.SimpleNamespace(level=Level.LOW)
    yield lambda t: t * held.level
    yield (x(),)
    held.level = Level.HIGH
    yield (x(),)


@program("class", "enum as a key")
def _():
    table = {Colour.RED: 2.0, Colour.BLUE: 3.0}
    held = types.SimpleNamespace(colour=Colour.RED)
    yield lambda t: t * table[held.colour]
    yield (x(),)
    held.colour = Colour.BLUE
    yield (x(),)
    table[Colour.BLUE] = 9.0
    yield (x(),)


@program("class", "weak reference")
def _():
    class Held:
        scale = 2

    one, two = Held(), Held()
    two.scale = 5
    box = types.SimpleNamespace(ref=weakref.ref(one))
    yield lambda t: t * box.ref().scale
    yield (x(),)
    box.ref = weakref.ref(two)
    yield (x(),)


@program("class", "copy of a config")
def _():
    held = types.SimpleNamespace(config=types.SimpleNamespace(scale=2))
    yield lambda t: t * held.config.scale
    yield (x(),)
    held.config = copy.deepcopy(held.config)
    yield (x(),)
    held.config.scale = 3
    yield (x(),)


@program("class", "string subclass")
def _():
    class Name(str):
        pass

    held = types.SimpleNamespace(name=Name("sin"))
    yield lambda t: getattr(torch, held.name)(t)
    yield (x(),)
    held.name = Name("cos")
    yield (x(),)


# --- arguments that are no tensors ---


@program("argument", "Python float that changes every call")
def _():
    yield lambda t, s: (t * s).sin()
    for value in (0.5, 0.6, 0.7):
        yield (x(), value)


@program("argument", "float minus zero")
def _():
    yield lambda t, s: t / s
    yield (x(), 0.0 + 1e-300)
    yield (x(), -0.0 - 1e-300)


@program("argument", "nan")
def _():
    yield lambda t, s: torch.where(t > s, t, -t)
    yield (x(), float("nan"))
    yield (x(), 2.0)


@program("argument", "int, then float, then bool")
def _():
    yield lambda t, s: t.to(torch.int64) * s
    yield (x(), 1)
    yield (x(), 1.0)
    yield (x(), True)


@program("argument", "int out of a tensor")
def _():
    yield lambda t, n: t * n
    yield (x(), torch.tensor(2).item())
    yield (x(), torch.tensor(3).item())


@program("argument", "NumPy scalar")
def _():
    yield lambda t, s: t * s
    yield (x(), np.float64(2.0))
    yield (x(), np.float64(3.0))


@program("argument", "NumPy integer as a size")
def _():
    yield lambda t, n: t.reshape(int(n), -1)
    yield (x(), np.int64(2))
    yield (x(), np.int64(3))


@program("argument", "NumPy array")
def _():
    yield lambda t, a: t + torch.as_tensor(a)
    yield (x(), np.ones(3, "f4"))
    yield (x(), np.full(3, 5, "f4"))


@program("argument", "complex number")
def _():
    yield lambda t, c: t * c
    yield (x(), 1 + 2j)
    yield (x(), 2 - 1j)


@program("argument", "callable")
def _():
    yield lambda t, f: f(t) + 1
    yield (x(), torch.sin)
    yield (x(), torch.cos)


@program("argument", "nested structure")
def _():
    yield lambda t, s: t * s["a"][0] + s["b"]
    yield (x(), {"a": [1, 2], "b": 3})
    yield (x(), {"a": [2, 2], "b": 4})
    yield (x(), {"b": 4, "a": [2]})


@program("argument", "None or not")
def _():
    yield lambda t, m=None: t if m is None else t * m
    yield (x(),)
    yield (x(), torch.ones(3) * 2)
    yield (x(), None)


@program("argument", "number of arguments")
def _():
    yield lambda *parts: sum(parts)
    yield (x(), x())
    yield (x(), x(), x())


@program("argument", "string")
def _():
    yield lambda t, name: getattr(t, name)(0)
    yield (x(), "sum")
    yield (x(), "cumsum")


@program("argument", "size that varies")
def _():
    yield lambda t: t * t.shape[0] if t.shape[0] > 3 else t + t.shape[0]
    for size in (2, 3, 4, 5):
        yield (torch.ones(size, 3),)


@program("argument", "learning rate on an object")
def _():
    class Group:
        lr = 0.1

    group = Group()

    def step(w, g):
        w.sub_(g, alpha=group.lr)
        return w.sum()

    yield step
    w = x()
    for rate in (0.1, 0.05, 0.025):
        group.lr = rate
        yield (w, torch.ones(2, 3))
