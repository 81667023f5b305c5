"""A random node runs once, in the half of a joint graph that eager runs it in.

Drawing a number changes the random state, so partitioners leave a random node of the forward in the backward too,
where nothing reads it; and one of the backward that depends on no gradient they move to the forward. Either way the
numbers drawn later are not eager's.
"""

from __future__ import annotations

import torch.fx as fx

from aotviz.torch_private import operators


def hold_in_backward(joint: fx.GraphModule) -> None:
    """Keep what the backward draws in the backward. Edits the tags that partitioners go by."""
    for node in joint.graph.nodes:
        if operators.is_random(node.target) and node.meta.get("partitioner_tag") == "is_backward":
            node.meta["partitioner_tag"] = "must_be_in_backward"


def drop_repeated(backward: fx.GraphModule) -> None:
    """Remove what the forward has drawn already and nothing here reads. Edits `backward`."""
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
