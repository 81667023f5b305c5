"""A process group of one rank: `mesh` for the tests of a module that imports it, `alone` for a program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import init_device_mesh


@pytest.fixture(scope="module", autouse=True)
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A process group that runs no collective. It has no thread, for which a process could wait for ever at its end."""

    dist.init_process_group("fake", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def leaf(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()
