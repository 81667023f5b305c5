"""Custom `autograd.Function`s as users write them, from torch's `autograd_function_db`."""

from __future__ import annotations

from collections.abc import Iterator

from torch.testing._internal.autograd_function_db import autograd_function_db

from tests.oracle.sweep_ops import name_of

from ..cases import Case, op_cases

TITLE = "Custom autograd functions"
ABOUT = "Every sample of `torch.testing._internal.autograd_function_db`, forward and backward, through `aot_function`."

_OPS = {name_of(op): op for op in autograd_function_db}


def groups() -> list[str]:
    return list(_OPS)


def cases(group: str) -> Iterator[Case]:
    return op_cases(_OPS[group])
