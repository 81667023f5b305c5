"""What a program may read from Python beside its arguments, each as a small program that reads it.

A program is a generator function: it yields the function that is compiled, then the arguments of each call. Between
two calls it changes what the function reads. What it returns is compared as well: the state that the calls left.

Many are combinations: a place where a value lives (`PLACES`) and a sort of value (`VALUES`). A value has two states,
and the place says how to put it there. The others stand in the files beside this one.
"""

from __future__ import annotations

import contextvars
import dataclasses
import enum
import functools
import threading
import types
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch

Program = Callable[[], Generator[Any, None, Any]]

PROGRAMS: dict[str, Program] = {}  # "group: what changes" -> program


def program(group: str, name: str) -> Callable[[Program], Program]:
    def add(make: Program) -> Program:
        key = f"{group}: {name}"
        assert key not in PROGRAMS, key
        PROGRAMS[key] = make
        return make

    return add


def x() -> torch.Tensor:
    return torch.arange(1.0, 7.0).reshape(2, 3)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 2
    HIGH = 5


# --- sorts of values: (first, second, what a function makes of it) ---

VALUES: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[torch.Tensor, Any], Any]]] = {
    "int": (lambda: 2, lambda: 5, lambda t, v: t * v + v),
    "float": (lambda: 0.5, lambda: -0.25, lambda t, v: (t * v).sin()),
    "bool": (lambda: True, lambda: False, lambda t, v: t.sin() if v else t.cos()),
    "string": (lambda: "relu", lambda: "tanh", lambda t, v: getattr(t - 3, v)()),
    "None or a tensor": (lambda: None, lambda: torch.ones(3), lambda t, v: t if v is None else t + v),
    "tensor": (lambda: torch.ones(3), lambda: torch.full((3,), 4.0), lambda t, v: t * v),
    "tensor of another shape": (lambda: torch.ones(3), lambda: torch.full((2, 1), 4.0), lambda t, v: t * v),
    "function": (lambda: torch.sin, lambda: torch.exp, lambda t, v: v(t)),
    "lambda": (lambda: lambda t: t + 1, lambda: lambda t: t * 3, lambda t, v: v(t)),
    "list": (lambda: [1, 2], lambda: [1, 2, 3.5], lambda t, v: sum(t * k for k in v)),
    "dict": (lambda: {"a": 1, "b": 2}, lambda: {"b": 1, "a": 3}, lambda t, v: [t * k for k in v.values()]),
    "set": (lambda: {1}, lambda: {1, 2}, lambda t, v: t * len(v) + (2 in v)),
    "tuple": (lambda: (3, 2), lambda: (6, 1), lambda t, v: t.reshape(v)),
    "dtype": (lambda: torch.float64, lambda: torch.int32, lambda t, v: t.to(v)),
    "enum": (lambda: Colour.RED, lambda: Colour.BLUE, lambda t, v: t.sin() if v is Colour.RED else t.cos()),
    "NumPy scalar": (lambda: np.float32(2.0), lambda: np.float32(3.0), lambda t, v: t * float(v)),
    "NumPy array": (lambda: np.ones(3, "f4"), lambda: np.full(3, 2, "f4"), lambda t, v: t + torch.from_numpy(v)),
    "slice": (lambda: slice(0, 1), lambda: slice(0, 2), lambda t, v: t[v] * 2),
}

# --- places: a function of (value, use) that gives (function, how to change the value) ---

Place = Callable[[Any, Callable[[torch.Tensor, Any], Any]], tuple[Callable[..., Any], Callable[[Any], None]]]
PLACES: dict[str, Place] = {}
GLOBAL: Any = None
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("value")
LOCAL = threading.local()
SETTINGS = types.ModuleType("sweep_settings")


def place(name: str) -> Callable[[Place], Place]:
    def add(make: Place) -> Place:
        PLACES[name] = make
        return make

    return add


@place("global")
def _global(value, use):
    def change(new):
        globals()["GLOBAL"] = new

    change(value)
    return lambda t: use(t, GLOBAL), change


@place("closure")
def _closure(value, use):
    held = value

    def change(new):
        nonlocal held
        held = new

    return lambda t: use(t, held), change


@place("default argument")
def _default(value, use):
    def function(t, held=value):
        return use(t, held)

    return function, lambda new: setattr(function, "__defaults__", (new,))


@place("keyword default")
def _keyword_default(value, use):
    def function(t, *, held=value):
        return use(t, held)

    return function, lambda new: setattr(function, "__kwdefaults__", {"held": new})


@place("function attribute")
def _function_attribute(value, use):
    def function(t):
        return use(t, function.held)

    function.held = value
    return function, lambda new: setattr(function, "held", new)


@place("object")
def _object(value, use):
    held = types.SimpleNamespace(value=value)
    return lambda t: use(t, held.value), lambda new: setattr(held, "value", new)


@place("nested config")
def _nested(value, use):
    config = types.SimpleNamespace(model=types.SimpleNamespace(layers=[types.SimpleNamespace(value=value)]))
    return lambda t: use(t, config.model.layers[0].value), lambda new: setattr(config.model.layers[0], "value", new)


@place("config replaced")
def _replaced(value, use):
    owner = types.SimpleNamespace(config=types.SimpleNamespace(value=value))
    return lambda t: use(t, owner.config.value), lambda new: setattr(owner, "config", types.SimpleNamespace(value=new))


@place("class attribute")
def _class_attribute(value, use):
    class Held:
        pass

    Held.value = value
    return lambda t: use(t, Held.value), lambda new: setattr(Held, "value", new)


@place("class attribute by an instance")
def _by_instance(value, use):
    class Base:
        pass

    class Held(Base):
        pass

    Base.value = staticmethod(value) if callable(value) else value
    held = Held()
    change = lambda new: setattr(Base, "value", staticmethod(new) if callable(new) else new)  # noqa: E731
    return lambda t: use(t, held.value), change


@place("instance over its class")
def _shadowed(value, use):
    class Held:
        pass

    Held.value = staticmethod(value) if callable(value) else value
    held = Held()
    return lambda t: use(t, held.value), lambda new: setattr(held, "value", new)


@place("property")
def _property(value, use):
    class Held:
        def __init__(self):
            self._value = value

        @property
        def value(self):
            return self._value

    held = Held()
    return lambda t: use(t, held.value), lambda new: setattr(held, "_value", new)


@place("slot")
def _slot(value, use):
    class Held:
        __slots__ = ("value",)

    held = Held()
    held.value = value
    return lambda t: use(t, held.value), lambda new: setattr(held, "value", new)


@place("dataclass")
def _dataclass(value, use):
    @dataclasses.dataclass
    class Held:
        value: Any

    held = Held(value)
    return lambda t: use(t, held.value), lambda new: setattr(held, "value", new)


@place("dict entry")
def _dict_entry(value, use):
    held = {"value": value}
    return lambda t: use(t, held["value"]), lambda new: held.update(value=new)


@place("list element")
def _list_element(value, use):
    held = [0, value]
    return lambda t: use(t, held[1]), lambda new: held.__setitem__(1, new)


@place("method's self")
def _method(value, use):
    class Held:
        def __init__(self):
            self.value = value

        def run(self, t):
            return use(t, self.value)

    held = Held()
    return held.run, lambda new: setattr(held, "value", new)


@place("module attribute")
def _module(value, use):
    class Held(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.value = value

        def forward(self, t):
            return use(t, self.value)

    held = Held()
    return held, lambda new: setattr(held, "value", new)


@place("imported module")
def _imported(value, use):
    SETTINGS.value = value
    return lambda t: use(t, SETTINGS.value), lambda new: setattr(SETTINGS, "value", new)


@place("context variable")
def _context_variable(value, use):
    VARIABLE.set(value)
    return lambda t: use(t, VARIABLE.get()), lambda new: VARIABLE.set(new)


@place("thread local")
def _thread_local(value, use):
    LOCAL.value = value
    return lambda t: use(t, LOCAL.value), lambda new: setattr(LOCAL, "value", new)


@place("partial")
def _partial(value, use):
    held = types.SimpleNamespace(call=functools.partial(_second, use, value))
    change = lambda new: setattr(held, "call", functools.partial(_second, use, new))  # noqa: E731
    return lambda t: held.call(t), change


def _second(use, value, t):
    return use(t, value)


EVERY = ("int", "string", "tensor")  # of every place
THOROUGH = ("closure", "module attribute")  # with every value


def _combination(where: str, what: str) -> Program:
    def run():
        first, second, use = VALUES[what]
        function, change = PLACES[where](first(), use)
        yield function
        yield (x(),)
        change(second())
        yield (x(),)
        yield (x() + 1,)

    return run


def combine() -> None:
    """Add the combinations of places and values."""
    for where in PLACES:
        for what in VALUES if where in THOROUGH else EVERY:
            program(where, what)(_combination(where, what))
