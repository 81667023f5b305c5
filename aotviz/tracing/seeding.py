"""Functions that seed torch's random generator, or save and restore its state.

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
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from aotviz.torch_private.random_numbers import identity

_drawn_from: dict[int, torch.Generator] | None = None  # by `identity`, while `met` looks

_SKIPPED = (torch.random.__file__, contextlib.__file__)


class _Watched:
    """torch's default generator, as the user's code in the tracing thread finds it."""

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
    """Call `asked("torch.random.manual_seed()")` before user code calls this or a similar function.

    After the block, `asked` is called with the method of a generator that was seeded in another way: torch's own, or
    one of the `others`, which are (name, value) pairs of which some are generators.
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
    """Restore the states of generators after the block, and call `asked("x.manual_seed()")` for one that was changed.
    Changes by another thread, or for which `excused` is true, are ignored."""
    before = [(name, generator, generator.initial_seed(), generator.get_state()) for name, generator in generators]
    yield
    for name, generator, seed, state in before:
        if torch.equal(generator.get_state(), state) or excused(generator):
            continue
        if not others_run() or _is_seeded(generator, seed):
            generator.set_state(state)
            asked(f"{name}.manual_seed()")


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
    global _drawn_from
    before, _drawn_from = _drawn_from, {}
    try:
        yield _drawn_from
    finally:
        _drawn_from = before


def note(generator: torch.Generator) -> None:
    """Called when a trace draws from this generator."""
    if _drawn_from is not None:
        _drawn_from[identity(generator)] = generator
