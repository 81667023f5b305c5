"""How a program gets into the table, and the tensors that programs are made of.

Every program is a function that builds fresh inputs and returns `call(f, *args, **kwargs)`.  A program that is called
several times (other sizes, other grad mode) lists further builders with `then`.  Values are fixed, so a program
is the same on every run.  Tags name the rule, and the kinds of OutputType (docs/design/system.md A1)
that the program exercises.
"""

from __future__ import annotations

import inspect
import textwrap
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import torch

from ..compare import Setup, Trial

Point = namedtuple("Point", "x y")
PROGRAMS: dict[str, Trial] = {}


def plain(*shape: int, k: float = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Fixed values between about -1 and 1.4, different for different k."""
    count = torch.Size(shape).numel()
    t = torch.linspace(-1.1 + 0.13 * k, 1.3 - 0.07 * k, count, dtype=torch.float64).reshape(shape)
    return t.to(dtype)


def leaf(*shape: int, k: float = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return plain(*shape, k=k, dtype=dtype).requires_grad_()


def grown(*shape: int, k: float = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Requires grad and is not a leaf, so it may be mutated with grad mode on."""
    return leaf(*shape, k=k, dtype=dtype) * 1.5


def call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Setup:
    return Setup(fn, args, kwargs)


def program(*tags: str, dynamic: bool = False, then: tuple[Callable[[], Setup], ...] = ()) -> Callable[..., Any]:
    def register(build: Callable[[], Setup]) -> Callable[[], Setup]:
        source = textwrap.dedent(inspect.getsource(build))
        name = build.__name__
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Trial(name, (build, *then), source, dynamic, frozenset(tags))
        return build

    return register
