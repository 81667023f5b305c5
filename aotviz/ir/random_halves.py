"""A random node must run once, in the same half of a joint graph as in eager.

Drawing a number changes the random state, so partitioners keep a random node of the forward in the backward too, even
if nothing reads it there. They also move a random node of the backward that depends on no gradient to the forward. In
both cases, later random numbers would differ from eager's.
"""

from __future__ import annotations

import torch.fx as fx

from aotviz.torch_private import operators


def hold_in_backward(joint: fx.GraphModule) -> None:
    """Keep random nodes of the backward in the backward. Edits the tags that partitioners use."""
    for node in joint.graph.nodes:
        if operators.is_random(node.target) and node.meta.get("partitioner_tag") == "is_backward":
            node.meta["partitioner_tag"] = "must_be_in_backward"


def drop_repeated(backward: fx.GraphModule) -> None:
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
