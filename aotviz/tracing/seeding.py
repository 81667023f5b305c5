"""Functions that seed torch's random generator, or take its state down and put it back.

A trace draws nothing, and a graph has no node for a generator's state: what follows `torch.manual_seed` would draw on
from where the caller's generator was. `torch.random`'s functions find the generator in a global of their module; while
a function is traced, a stand-in lies there that tells of who asks.

Note [Other threads draw]
What a generator's method does to its state cannot be seen, only that the state is another one afterwards. A trace draws
nothing, so in a process of one thread the traced function has seeded it. Another thread may draw at any time: then only
a state that drawing does not lead to is the function's doing, one with another seed or one that is freshly seeded. The
state that another thread has drawn from is left as it is, or that thread would draw the same numbers again.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from aotviz.torch_private.random_numbers import identity

_drawn_from: dict[int, torch.Generator] | None = None  # by `identity`, while `met` looks

_SKIPPED = (torch.random.__file__, contextlib.__file__)


class _Watched:
    """torch's default generator, as the user's code finds it in the thread that traces."""

    def __init__(self, generator: torch.Generator, is_library: Callable[[str], bool], asked: Callable[[str], None]):
        self._generator, self._is_library, self._asked = generator, is_library, asked
        self._thread = threading.get_ident()
        self.seeded_elsewhere = False  # by another thread

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() == self._thread:
            called, frame = "", sys._getframe(1)
            while frame.f_code.co_filename in _SKIPPED and frame.f_back is not None:
                if frame.f_code.co_filename == torch.random.__file__:
                    called = frame.f_code.co_name
                frame = frame.f_back
            if called and not self._is_library(frame.f_code.co_filename):
                self._asked(f"torch.random.{called}()")
        elif name in ("manual_seed", "seed", "set_state"):
            self.seeded_elsewhere = True
        return getattr(self._generator, name)


@contextlib.contextmanager
def noted(
    asked: Callable[[str], None], is_library: Callable[[str], bool], others: Iterable[tuple[str, Any]] = ()
) -> Iterator[None]:
    """Call `asked("torch.random.manual_seed()")` before the block's own code calls that, or another of these functions.

    It is called behind the block with the method of a generator that was seeded in another way: torch's own, or one
    of the `others`, (name, value) pairs of which some are generators.
    """
    generator = torch.random.default_generator
    own = [(name, value) for name, value in others if isinstance(value, torch.Generator)]
    watched = _Watched(generator, is_library, asked)
    with states_kept([("torch", generator), *own], asked, lambda one: one is generator and watched.seeded_elsewhere):
        torch.random.default_generator = watched
        try:
            yield
        finally:
            torch.random.default_generator = generator


@contextlib.contextmanager
def states_kept(
    generators: Iterable[tuple[str, torch.Generator]],
    asked: Callable[[str], None],
    excused: Callable[[torch.Generator], bool] = lambda _: False,
) -> Iterator[None]:
    """Give generators their states back behind the block, and call `asked("x.manual_seed()")` for one that lost its,
    unless another thread did that, or `excused` says so of it."""
    before = [(name, generator, generator.initial_seed(), generator.get_state()) for name, generator in generators]
    yield
    for name, generator, seed, state in before:
        if torch.equal(generator.get_state(), state) or excused(generator):
            continue
        if not others_run() or _is_seeded(generator, seed):
            generator.set_state(state)
            asked(f"{name}.manual_seed()")


def others_run() -> bool:
    """Whether another thread may draw. See Note [Other threads draw]."""
    return threading.active_count() > 1


def _is_seeded(generator: torch.Generator, seed: int) -> bool:
    """Whether a generator that had this seed was seeded since."""
    if generator.initial_seed() != seed:
        return True
    fresh = torch.Generator(generator.device).manual_seed(seed)
    return torch.equal(generator.get_state(), fresh.get_state())


@contextlib.contextmanager
def met() -> Iterator[dict[int, torch.Generator]]:
    """By `identity`, the generators that what is traced inside draws from, besides torch's own."""
    global _drawn_from
    before, _drawn_from = _drawn_from, {}
    try:
        yield _drawn_from
    finally:
        _drawn_from = before


def note(generator: torch.Generator) -> None:
    """A trace draws from this generator."""
    if _drawn_from is not None:
        _drawn_from[identity(generator)] = generator
