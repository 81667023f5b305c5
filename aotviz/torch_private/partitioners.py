"""torch's partitioners, which are dependencies of this package and used as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.utils.checkpoint import CheckpointPolicy

__all__ = ["default_partition", "min_cut_rematerialization_partition", "must_save", "partitioning"]


def must_save(node: fx.Node) -> None:
    """Forbid every partitioner to compute `node` again in the backward."""
    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    node.meta["ac_graph_id"] = 0


@contextlib.contextmanager
def partitioning(fake_mode: Any) -> Iterator[None]:
    """The ambient state that partitioners and joint passes run in. What they make writes no Python before it runs."""
    with torch.no_grad(), torch._C._DisableAutocast(), fake_mode, _use_lazy_graph_module(True):
        yield
