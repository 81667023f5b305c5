"""The functional tensors of a run as they are when it ends, for those who know them by their numbers (`events.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotviz.ir.view_and_mutation import Layout
from aotviz.torch_private import operators
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional, views
from aotviz.tracing.events import TensorNumber


class TensorStates:
    """What `replay.States` asks, read from the tensors inside the open trace."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors

    def requires_grad(self, tensor: TensorNumber) -> bool:
        return bool(self._tensors[tensor].requires_grad)

    def is_view(self, tensor: TensorNumber) -> bool:
        return base_of(self._tensors[tensor]) is not None

    def stale(self, tensor: TensorNumber) -> bool:
        value = self._tensors[tensor]
        return functional.is_functional(value) and functional.is_stale(value)

    def data_mutated(self, tensor: TensorNumber) -> bool:
        return functional.data_mutated(self._tensors[tensor])

    def version(self, tensor: TensorNumber) -> int:
        return operators.version(self._tensors[tensor])

    def shares_counter(self, alias: TensorNumber, tensor: TensorNumber) -> bool:
        return functional.shares_counter(self._tensors[alias], self._tensors[tensor])

    def layout(self, tensor: TensorNumber) -> Layout:
        return views.layout(self._tensors[tensor])

    def kind(self, tensor: TensorNumber) -> tuple[Any, ...]:
        value = self._tensors[tensor]
        return value.dtype, value.is_conj(), value.is_neg()
