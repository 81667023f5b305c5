"""What a program asks of the pipeline after it was compiled: work that is done when it is first needed.

There can be two backwards: one may overwrite the saved tensors that were donated to it, the other keeps them, for
`retain_graph=True`. If nothing is donated, one serves both purposes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from aotviz.ir.forms import BackwardRequest, Compiled, FlatCall, GradientRequest, JointCall, LoweredBackward
from aotviz.ir.view_and_mutation import Ref


@dataclass(frozen=True)
class GradientProgram:
    """A program that computes gradients, and can itself be differentiated."""

    function: Callable[..., Any]
    positions: tuple[int, ...]  # of the inputs whose gradients it returns; (0,) for that of a result, if there is one
    passed: tuple[Ref, ...]  # results that a second derivative flows through
    ends: tuple[Ref, ...]  # those of them that it takes as arguments, where the derivative ends
    reads: frozenset[int] | None  # the arguments that it or its derivative reads; None if that is not known

    def may_read(self, argument: int) -> bool:
        return self.reads is None or argument in self.reads


class DeferredStages(Protocol):
    """Runs stages under the observer of the program that asks for them."""

    def backward(self, request: BackwardRequest) -> LoweredBackward: ...
    def gradients(self, request: GradientRequest) -> GradientProgram: ...
    def traced_again(self, source: FlatCall | GradientRequest) -> JointCall: ...


@dataclass(eq=False)
class LazyBackward:
    """The backward, compiled when first needed. `plain` runs its graph uncompiled."""

    compile: Callable[[bool], Compiled]  # given whether the saved tensors must survive
    donates: bool
    plain: Compiled
    discarding: Compiled | None = None  # the compiled backwards, None until first used
    keeping: Compiled | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, keep: bool) -> Compiled:
        if not self.lock.acquire(blocking=False):
            # It is being compiled, in another thread or further up in this one. To wait for that may be to wait for
            # oneself: an observer or a compiler may call anything.
            return self.plain
        try:
            known = self.keeping if keep else self.discarding
            if known is None:
                known = self.compile(keep)
                if keep or not self.donates:
                    self.keeping = known
                if not keep or not self.donates:
                    self.discarding = known
            return known
        finally:
            self.lock.release()
