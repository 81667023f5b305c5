"""Random generators that a forward and its backward share, for CUDA graphs to replay both (docs/design/system.md C6).

A random node that the backward recomputes draws from a separate generator in each half. Both start in the same state,
and each call advances both equally, so they stay in step without copies. States are saved and restored only if calls do
not alternate between one forward and its backward.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch


class Call:
    """One forward. `states` are the generators' at its start; None while the backward's generators still have them."""

    __slots__ = ("__weakref__", "states")

    def __init__(self) -> None:
        self.states: list[torch.Tensor] | None = None


class Generators:
    """`make(seed)` creates the generator of one random node; both halves have one for each of `makers`."""

    def __init__(self, makers: Sequence[Callable[[int], Any]]) -> None:
        self.makers = makers
        self.of_forward: list[Any] = []
        self.of_backward: list[Any] = []
        self._level = True  # both halves' generators are in the same state
        self._latest: weakref.ref[Call] | None = None
        self._ready: weakref.ref[Call] | None = None  # the call whose initial state the backward's generators have

    def forward(self) -> tuple[Call, list[Any]]:
        """Begin a call. Returns what its backward needs, and the forward's generators."""
        if not self.of_forward:
            seeds = torch.randint(0, torch.iinfo(torch.int64).max, (len(self.makers),)).tolist()
            self.of_forward = [make(seed) for make, seed in zip(self.makers, seeds, strict=True)]
            self.of_backward = [make(seed) for make, seed in zip(self.makers, seeds, strict=True)]
        call = Call()
        if self._level:
            self._ready, self._level = weakref.ref(call), False
        else:
            call.states = [generator.get_state() for generator in self.of_forward]
        self._latest = weakref.ref(call)
        return call, self.of_forward

    def backward(self, call: Call, again: bool) -> list[Any]:
        """The backward's generators in the state that `call` began with. `again`: the backward may run once more."""
        ready = None if self._ready is None else self._ready()
        if ready is not None and (ready is not call or again):
            ready.states = [generator.get_state() for generator in self.of_backward]
        if ready is not call:
            if call.states is None:
                raise RuntimeError("aotviz lost the random state of a forward whose backward runs again")
            for generator, state in zip(self.of_backward, call.states, strict=True):
                generator.set_state(state)
        self._ready = None
        self._level = self._latest is not None and self._latest() is call
        return self.of_backward
