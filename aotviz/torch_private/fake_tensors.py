"""Fake tensors, their modes, and what they raise where a trace cannot go on without values."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.source import ConstantSource as ConstantSource
from torch._guards import detect_fake_mode as detect_fake_mode
from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode


def fake(mode: FakeTensorMode, meta: torch.Tensor, device: str) -> Any:
    """The fake tensor on `device` with the layout of a tensor on the meta device. Over ten times as fast as an operator
    under the mode."""
    return FakeTensor(mode, meta, torch.device(device))
