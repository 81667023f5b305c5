"""Every operator of torch's `op_db` with every dtype that it takes on a CPU: the first sample of each.

`make sweep-ops` has every sample of the float32 ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from torch.testing._internal.common_methods_invocations import op_db

from tests.oracle.progress import Row
from tests.oracle.samples import samples_of
from tests.oracle.sweep_ops import LEFT_OUT, name_of, sample_program

from ..cases import Case, program_case, skipped

TITLE = "Operators, by dtype"
ABOUT = """The first sample of each operator in torch's `op_db`, with each dtype that the operator supports on a CPU.
Each case runs the forward, and the backward if the dtype is differentiable, through `aot_function`. `make sweep-ops`
runs every float32 sample."""

_OPS = {name_of(op): op for op in op_db}


def groups() -> list[str]:
    return list(_OPS)


def cases(group: str) -> Iterator[Case]:
    op = _OPS[group]
    differentiable = op.supported_backward_dtypes("cpu") if op.supports_autograd else set()
    for dtype in sorted(op.supported_dtypes("cpu"), key=str):
        key = f"{group}#{str(dtype).removeprefix('torch.')}"
        if op.name in LEFT_OUT:
            yield skipped(key, LEFT_OUT[op.name])
            continue
        for sample in islice(samples_of(op, dtype, dtype in differentiable), 1):
            yield program_case(key, sample_program(key, op.op, sample))


def also(_rows: list[Row]) -> list[str]:
    """Why some are wrong in both."""
    return [NOTE, ""]


NOTE = """For a few operators, torch's trace uses other operators than eager. Dropout that drops nothing returns a copy
in the trace, but eager returns its argument. The trace interpolates uint8 images as floating-point numbers, which
rounds some values up that eager rounds down. aotviz traces what eager does."""
