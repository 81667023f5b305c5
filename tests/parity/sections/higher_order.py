"""Operators that take functions: cond, scan, flex_attention and their kin, from torch's `hop_db`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.testing._internal.hop_db import hop_db

from tests.oracle.sweep_ops import name_of

from ..cases import Case, op_cases

TITLE = "Higher-order operators"
ABOUT = "Every float32 sample of `torch.testing._internal.hop_db`, forward and backward, through `aot_function`."

_OPS = {name_of(op): op for op in hop_db if torch.float32 in op.supported_dtypes("cpu")}


def groups() -> list[str]:
    return list(_OPS)


def cases(group: str) -> Iterator[Case]:
    return op_cases(_OPS[group])
