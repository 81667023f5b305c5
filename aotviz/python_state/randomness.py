"""Random numbers that a trace cannot follow: from Python and NumPy, or from a torch generator that the function seeds.

A trace draws no numbers, and a graph has no node for a generator's state: after `torch.manual_seed`, a compiled call
would still draw from the caller's state. The functions of `torch.random` find the generator in a global of their
module; while a function is traced, that global is an object that reports who uses it.

Note [Other threads draw]
What a method of a generator does to its state is invisible; only the changed state can be seen. A trace draws nothing,
so in a process with one thread the traced function must have seeded it. Another thread may draw at any time. Then the
function is blamed only for a state that drawing cannot produce: another seed, or a freshly seeded state. A state that
another thread has drawn from is not restored, or that thread would draw the same numbers again.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from aotviz.ir.forms import Request
from aotviz.ir.refusals import Refused
from aotviz.ir.user_code import is_library
from aotviz.torch_private.random_numbers import identity
from aotviz.torch_private.tracers import swapped

_met = SimpleNamespace(generators=None)  # by `identity`, while `met` looks

_SKIPPED = (torch.random.__file__, contextlib.__file__)


class _Watched:
    """torch's default generator, as the user's code in the tracing thread finds it."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._thread = threading.get_ident()
        self.seeded_elsewhere = False  # by another thread

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() == self._thread:
            called, frame = "", sys._getframe(1)
            while frame.f_code.co_filename in _SKIPPED and frame.f_back is not None:
                if frame.f_code.co_filename == torch.random.__file__:
                    called = frame.f_code.co_name
                frame = frame.f_back
            if called and not is_library(frame.f_code.co_filename):
                refuse(f"torch.random.{called}()")
        elif name in ("manual_seed", "seed", "set_state"):
            self.seeded_elsewhere = True
        return getattr(self._generator, name)


def refuse(what: str) -> None:
    raise Refused("random state inside", what)


@contextlib.contextmanager
def followed(request: Request) -> Iterator[None]:
    """Refuse a function that seeds torch's generator; warn if it draws from another library's.

    Raises:
        Refused: "random state inside".
    """
    before = _states()
    generator = torch.random.default_generator
    watched = _Watched(generator)
    kept = states_kept([("torch", generator)], lambda: watched.seeded_elsewhere)
    with kept, swapped(torch.random, default_generator=watched):
        yield
    for name, state in _states().items():
        if name in before and before[name] != state:
            warnings.warn(
                f"{request.name} draws a random number from {name}. Compiled calls use the number drawn when "
                "the function was compiled. Draw it with torch, or pass it as an argument",
                stacklevel=2,
            )


def _states() -> dict[str, Any]:
    """The states of the generators of Python and NumPy."""
    found: dict[str, Any] = {"the module random": random.getstate()}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        kind, keys, *rest = numpy.get_state()
        found["numpy.random"] = (kind, keys.tobytes(), *rest)
    return found


@contextlib.contextmanager
def states_kept(
    generators: Iterable[tuple[str, torch.Generator]], excused: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Restore the states of generators after the block, and refuse a function that changed one: "x.manual_seed()".
    Changes by another thread, or while `excused()` is true, are ignored."""
    before = [(name, generator, generator.initial_seed(), generator.get_state()) for name, generator in generators]
    changed: list[str] = []
    try:
        yield
    finally:
        for name, generator, seed, state in before:
            same = torch.equal(generator.get_state(), state) or excused()
            if not same and (not others_run() or _is_seeded(generator, seed)):
                generator.set_state(state)
                changed.append(name)
    if changed:
        refuse(f"{changed[0]}.manual_seed()")


def others_run() -> bool:
    """Whether another thread may draw; see Note [Other threads draw]."""
    return threading.active_count() > 1


def _is_seeded(generator: torch.Generator, seed: int) -> bool:
    """Whether a generator that had this seed has been seeded since."""
    if generator.initial_seed() != seed:
        return True
    fresh = torch.Generator(generator.device).manual_seed(seed)
    return torch.equal(generator.get_state(), fresh.get_state())


@contextlib.contextmanager
def met() -> Iterator[dict[int, torch.Generator]]:
    """The generators, by `identity`, that traced code draws from, other than torch's default generator."""
    found: dict[int, torch.Generator] = {}
    with swapped(_met, generators=found):
        yield found


def note(generator: torch.Generator) -> None:
    """Called when a trace draws from this generator."""
    if _met.generators is not None:
        _met.generators[identity(generator)] = generator
