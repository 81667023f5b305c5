"""Partitioners of joint graphs: choosing one, and telling it what to save.

Note [Random nodes run once]
A random node must run once, in the same half of a joint graph as in eager. Drawing a number changes the random state,
so partitioners keep a random node of the forward in the backward too, even if nothing reads it there. They also move a
random node of the backward that depends on no gradient to the forward. In both cases, later random numbers would differ
from eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy

from aotviz.torch_private import operators
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


def hold_random_in_backward(joint: fx.GraphModule) -> None:
    """Keep random nodes of the backward there; see Note [Random nodes run once]. Edits tags that partitioners use."""
    for node in joint.graph.nodes:
        if operators.is_random(node.target) and node.meta.get("partitioner_tag") == "is_backward":
            node.meta["partitioner_tag"] = "must_be_in_backward"


def drop_repeated_random(backward: fx.GraphModule) -> None:
    """Remove random nodes that the forward has already run and whose results are not read here. Edits `backward`."""
    drawn = [
        node
        for node in backward.graph.nodes
        if operators.is_random(node.target) and not str(node.meta.get("partitioner_tag")).endswith("backward")
    ]
    gone: set[fx.Node] = set()
    for node in drawn:
        if node not in gone and all(not user.users for user in node.users):
            for one in [*node.users, node]:
                backward.graph.erase_node(one)
                gone.add(one)
    if gone:
        backward.graph.eliminate_dead_code()
        backward.recompile()
