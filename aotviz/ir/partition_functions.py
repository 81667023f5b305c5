"""Partitioners of joint graphs: choosing one, and telling it what to save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy

from aotviz.torch_private.partitioners import default_partition, min_cut_rematerialization_partition


def region_partitioner(call: fx.Node) -> Callable[..., Any] | None:
    """The partitioner that a region itself requests (`torch.compiler.nested_compile_region(options=...)`)."""
    config = call.meta.get("custom", {}).get("nested_region_config")
    chosen = getattr(config, "partitioner", None)
    if chosen is None or callable(chosen):
        return chosen
    return named(chosen)


def named(partition_fn: str | Callable[..., Any]) -> Callable[..., Any]:
    """The partitioner with this name, or the given function. Raises ValueError, TypeError.

    >>> named("default_partition").__name__
    'default_partition'
    """
    known = {fn.__name__: fn for fn in (default_partition, min_cut_rematerialization_partition)}
    if isinstance(partition_fn, str):
        if partition_fn not in known:
            raise ValueError(f"there is no partitioner {partition_fn!r}; there are {', '.join(known)}")
        return known[partition_fn]
    if not callable(partition_fn):
        raise TypeError(f"partition_fn must be callable or a name ({', '.join(known)}), and it is {partition_fn!r}")
    return partition_fn


def must_save(node: fx.Node) -> None:
    """Forbid every partitioner to recompute `node` in the backward."""
    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    node.meta["ac_graph_id"] = 0
