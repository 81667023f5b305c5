"""What a program asks of the pipeline after it was compiled: the work that is done when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from aotviz.ir.forms import BackwardRequest, FlatCall, GradientRequest, JointCall, LoweredBackward
from aotviz.ir.view_and_mutation import Ref


@dataclass(frozen=True)
class GradientProgram:
    """A program that computes gradients, and that can be differentiated itself."""

    function: Callable[..., Any]
    positions: tuple[int, ...]  # of the inputs whose gradients it returns
    of_a_result: bool  # it returns the gradient of a result instead
    passed: tuple[Ref, ...]  # results that a second derivative passes,
    ends: tuple[Ref, ...]  # and of them those that it takes, where that ends


class Late(Protocol):
    """Runs stages under the observer of the program that asks."""

    def backward(self, request: BackwardRequest) -> LoweredBackward: ...
    def gradients(self, request: GradientRequest) -> GradientProgram: ...
    def traced_again(self, source: FlatCall | GradientRequest) -> JointCall: ...
