"""A process group of one rank, for the tests of a module that imports `mesh`."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import init_device_mesh


@pytest.fixture(scope="module", autouse=True)
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def leaf(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()
