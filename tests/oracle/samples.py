"""Samples of torch's operator database, without what makes each of them slow.

For every sample, torch looks for a case of unittest in each frame of the stack, and for that in every module: 0.1 s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core

core.extract_test_fn = common_utils.extract_test_fn = lambda: None  # the tests here are functions


def samples_of(operator: Any, dtype: torch.dtype, requires_grad: bool = False, device: str = "cpu") -> Iterable[Any]:
    """The samples of an operator of `op_db`, the same in each run."""
    return operator.sample_inputs(device, dtype, requires_grad=requires_grad)  # type: ignore[no-any-return]
