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

WAYS = [(door, views, loss) for loss in LOSSES for door, views in (("aotviz_eager", False), ("aot_function", True))]


@pytest.fixture(scope="module")
def programs():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    meshes = init_device_mesh("cpu", (1,)), init_device_mesh("cpu", (1, 1))
    yield Programs(dtensors.scope(*meshes), lambda: dtensors.inputs(*meshes))
    dist.destroy_process_group()


@pytest.mark.parametrize(("expression", "way"), in_turns(dtensors.PROGRAMS, WAYS, every=2))
def test_a_program_of_dtensors_is_right_where_torch_is(programs, expression, way):
    programs.check(expression, *way)
