"""Programs whose code differs between two processes: `python -m tests.cache.changed FOLDER FACTOR`.

Each takes its gradient or result times FACTOR, which is nowhere in Dynamo's graph. Prints a line of JSON for each:
what the cache answered, and whether the result and the gradient are eager's.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import torch

import aotviz

FACTOR = float(sys.argv[2]) if __name__ == "__main__" else 1.0
TABLE = {"factors": [FACTOR]}
Body = Callable[[Any], Any]
patched: Any = torch
patched_numpy: Any = numpy


class Settings:
    factor = FACTOR


def put_in_torch() -> None:
    """What some libraries do when they are imported."""
    patched.factor_of_a_user = FACTOR
    patched.nn.functional.relu = lambda x, inplace=False: x * FACTOR
    patched.Tensor.times_factor = lambda x: x * FACTOR
    standard: Any = math
    standard.sqrt = lambda number: FACTOR
    patched_numpy.factor_of_a_user = FACTOR


def helper() -> float:
    return Settings.factor


@torch.library.custom_op("tests_changed::inner", mutates_args=())
def inner(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR


@inner.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


inner.register_autograd(lambda ctx, g: g * FACTOR)


BODIES: dict[str, Body] = {
    "a constant": lambda g: g * FACTOR,
    "a table": lambda g: g * TABLE["factors"][0],
    "a helper and a class": lambda g: g * helper(),
    "an attribute put in torch": lambda g: g * patched.factor_of_a_user,
    "a function of torch replaced": lambda g: torch.nn.functional.relu(g),
    "a method added to tensors": lambda g: g.times_factor(),
    "a function of the standard library replaced": lambda g: g * math.sqrt(4.0),
    "an attribute put in numpy": lambda g: g * patched_numpy.factor_of_a_user,
    "an operator by its name": lambda g: torch.ops.tests_changed.inner(g),
}


def in_a_backward(number: int, body: Body) -> Body:
    """An operator whose backward runs `body`."""
    made = torch.library.custom_op(f"tests_changed::op{number}", mutates_args=())(_copied)
    made.register_fake(torch.empty_like)
    made.register_autograd(lambda ctx, g: body(g))
    return lambda x: made(x)


def _copied(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def allowed_in_the_graph(body: Body) -> Body:
    """A function that Dynamo does not look into."""

    def opaque(x: torch.Tensor) -> torch.Tensor:
        return body(x.sin())

    torch._dynamo.allow_in_graph(opaque)
    return lambda x: opaque(x)


class Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * Settings.factor * patched.factor_of_a_user


class Doubled(torch.Tensor):
    """A tensor subclass whose operators multiply by FACTOR."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return patched.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Doubled(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [one.inner if isinstance(one, Doubled) else one for one in args]
        return func(*plain, **(kwargs or {})) * helper()


def ran(name: str, f: Callable[..., torch.Tensor], folder: str, *others: Any) -> dict[str, Any]:
    torch._dynamo.reset()
    found, eager = (torch.linspace(0.1, 1, 4, requires_grad=True) for _ in range(2))
    with aotviz.record() as recording:
        result = aotviz.compile(f, backend="eager", cache=folder)(found, *others)
        result.sum().backward()
    expected = f(eager, *others)
    expected.sum().backward()
    assert found.grad is not None
    assert eager.grad is not None
    lookups = recording.cache_lookups
    return {
        "name": name,
        "outcomes": list(lookups["outcome"]),
        "reasons": [str(one) for one in lookups["reason"]],
        "is eager's": torch.allclose(result, expected) and torch.allclose(found.grad, eager.grad),
    }


def report(programs: dict[str, tuple[Any, ...]], folder: str) -> None:
    """Print a line for each program, a tuple of a function and its further arguments."""
    warnings.simplefilter("ignore")
    for name, (f, *others) in programs.items():
        print(json.dumps(ran(name, f, folder, *others)), flush=True)


def main(folder: str) -> None:
    put_in_torch()
    programs: dict[str, tuple[Any, ...]] = {}
    for number, (name, body) in enumerate(BODIES.items()):
        programs[f"{name}, in a backward"] = (in_a_backward(number, body),)
        programs[f"{name}, in a function of the graph"] = (allowed_in_the_graph(body),)
    programs["an autograd.Function"] = (lambda x: Multiplied.apply(x),)
    programs["a tensor subclass"] = (lambda x, other: x * (other * 1.0), Doubled(torch.ones(4)))
    report(programs, folder)
    library = torch.library.Library("aten", "IMPL")
    library.impl("tanh", Multiplied.apply, "AutogradCPU")
    report({"an operator of torch overridden": (lambda x: x.tanh(),)}, folder)


if __name__ == "__main__":
    main(sys.argv[1])
