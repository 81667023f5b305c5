"""Programs over DTensors of one rank: what torch has right is neither wrong nor refused here.

The gradients of the losses have the strides and placements of the result, or others: zeros, transposed, of inner
tensors.
"""

from __future__ import annotations

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.oracle import dtensor_expressions as dtensors
from tests.oracle.expressions import LOSSES, Programs
from tests.tiers import in_turns

DOORS = [("aotviz_eager", False), ("aot_function", True)]
# Each program by each door and with each loss, each loss by each door; but not each program with each pair of these.
TURNS = [[(*DOORS[(turn + k) % 2], loss) for k, loss in enumerate(LOSSES)] for turn in range(2)]
TABLE = [row for turn, ways in enumerate(TURNS) for row in in_turns(dtensors.PROGRAMS[turn::2], ways, every=2)]


@pytest.fixture(scope="module")
def programs():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    meshes = init_device_mesh("cpu", (1,)), init_device_mesh("cpu", (1, 1))
    yield Programs(dtensors.scope(*meshes), lambda: dtensors.inputs(*meshes))
    dist.destroy_process_group()


@pytest.mark.parametrize(("expression", "way"), TABLE)
def test_a_program_of_dtensors_is_right_where_torch_is(programs, expression, way):
    programs.check(expression, *way)
