"""Fake tensors, their modes, and what they raise where a trace cannot go on without values."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.source import ConstantSource as ConstantSource
from torch._guards import detect_fake_mode as detect_fake_mode
from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv

# What is raised where a program without data cannot go on.
DEPENDS_ON_DATA = DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode


def _equal(one: Any, other: Any) -> None:
    if one != other:
        raise ValueError(f"{one} and {other} differ")


def _put(x: torch.Tensor, indices: Any, source: torch.Tensor, *_: Any) -> None:
    source.expand(torch.ops.aten.index(x, indices).size())


def _chance(x: Any, p: Any = 0.5, *_: Any) -> None:
    if isinstance(p, (int, float)) and not 0 <= p <= 1:
        raise ValueError(f"{p} is no probability")


_aten = torch.ops.aten
# Operators that compare these on real data only: what raises on fakes too.
_ON_DATA: dict[Any, Callable[..., None]] = {
    _aten.index_put.default: _put,
    torch.ops.aten._unsafe_index_put.default: _put,
    _aten.select_scatter.default: lambda x, source, *place: _equal(source.size(), _aten.select(x, *place).size()),
    _aten.slice_scatter.default: lambda x, source, *place: _equal(source.size(), _aten.slice(x, *place).size()),
    _aten.bernoulli.p: _chance,
    _aten.native_dropout.default: _chance,
    _aten.put.default: lambda x, index, source, *_: _equal(source.numel(), index.numel()),
    _aten.embedding_dense_backward.default: lambda gradient, indices, *_: _equal(gradient.size()[:-1], indices.size()),
}


def compare_sizes(operator: Any, arguments: Sequence[Any]) -> None:
    """Raise, for fakes, what an operator would raise on real data because of their sizes."""
    check = _ON_DATA.get(operator)
    if check is not None:
        with contextlib.suppress(*DEPENDS_ON_DATA):
            check(*arguments)


def shape_env(mode: FakeTensorMode) -> ShapeEnv:
    """The symbols of a mode. Each of ours has some."""
    found: Any = mode.shape_env
    return found


def mode_apart() -> FakeTensorMode:
    """A mode for a call that no trace sees. Real constants may meet its fakes."""
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


class _ToldByTheError(logging.Filter):
    """Drops the stack of a meta kernel that raised, which torch logs before it raises the same error.

    It is dropped only below aotviz: a shape that does not fit is then one error, and not twenty lines before it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if "attempting to run meta" not in str(record.msg) or _LOG.isEnabledFor(logging.DEBUG):
            return True
        names = (str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_stack(sys._getframe()))
        return not any(name.startswith("aotviz.") and name != __name__ for name in names)


_LOG = logging.getLogger(FakeTensorMode.__module__)
_LOG.addFilter(_ToldByTheError())


def fake(mode: FakeTensorMode, meta: torch.Tensor, device: str) -> FakeTensor:
    """The fake tensor on `device` with the layout of a tensor on the meta device. Over ten times as fast as an operator
    under the mode."""
    return FakeTensor(mode, meta, torch.device(device))
