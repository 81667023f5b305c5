"""What a program asks of the pipeline after it was compiled: work that is done when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from aotviz.ir.forms import BackwardRequest, FlatCall, GradientRequest, JointCall, LoweredBackward
from aotviz.ir.view_and_mutation import Ref


@dataclass(frozen=True)
class GradientProgram:
    """A program that computes gradients, and can itself be differentiated."""

    function: Callable[..., Any]
    positions: tuple[int, ...]  # of the inputs whose gradients it returns
    of_a_result: bool  # it returns the gradient of a result instead
    passed: tuple[Ref, ...]  # results that a second derivative flows through
    ends: tuple[Ref, ...]  # those of them that it takes as arguments, where the derivative ends


class Late(Protocol):
    """Runs stages under the observer of the program that asks for them."""

    def backward(self, request: BackwardRequest) -> LoweredBackward: ...
    def gradients(self, request: GradientRequest) -> GradientProgram: ...
    def traced_again(self, source: FlatCall | GradientRequest) -> JointCall: ...
