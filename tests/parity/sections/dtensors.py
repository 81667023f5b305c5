"""DTensors of one rank."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.oracle import dtensor_expressions as dtensors
from tests.oracle.expressions import LOSSES, Programs

from ..beside import in_eager
from ..cases import Case
from .jagged import of_expression

TITLE = "DTensors"
ABOUT = """
The programs of `tests/oracle/dtensor_expressions.py` under `torch.compile`: results, gradients, what was written, and
what shares memory. Each program has one of six ways, in turns: its inputs are leaves or not, and the gradient of its
result has the strides and placements of the result, or others (zeros, transposed, of inner tensors); `make test-all`
takes all ways. Backend "aotviz_eager" beside torch's "aot_eager", and both beside eager. A program that raises an error
in eager is equal if it raises one.
`python -m tests.parity --section dtensors` writes this section.
"""
WAYS = list(product((False, True), LOSSES))


def groups() -> list[str]:
    return dtensors.PROGRAMS


def cases(group: str) -> Iterator[Case]:
    views, loss = WAYS[groups().index(group) % len(WAYS)]
    yield of_expression(_programs(), group, views, loss)


@functools.cache
def _programs() -> Programs:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    meshes = init_device_mesh("cpu", (1,)), init_device_mesh("cpu", (1, 1))
    return Programs(dtensors.scope(*meshes), lambda: dtensors.inputs(*meshes))


also = in_eager
