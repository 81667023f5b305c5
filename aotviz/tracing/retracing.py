"""torch's passes over a traced graph, used unchanged (SYSTEM.md D2): decomposing only annotated regions, and
recomputing regions of `torch.utils.checkpoint` for a backward that the function itself calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.fx as fx
import torch.fx.traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import selective_decompose

from aotviz.torch_private import graph_nodes, operators
from aotviz.torch_private.partitioners import must_recompute, remat_using_tags_for_fwd_loss_bwd_graph
from aotviz.torch_private.tracers import asks_for_inductor


def decomposed_where_annotated(
    module: fx.GraphModule, table: Mapping[Any, Any], inputs: Sequence[Any]
) -> fx.GraphModule:
    """The graph, with `table` applied to the regions that the user annotated for Inductor by
    `torch.fx.traceback.annotate({"compile_with_inductor": ...})`. `inputs` are the graph's fakes."""
    before = list(module.graph.find_nodes(op="placeholder"))
    with fx_traceback.preserve_node_meta():
        made = selective_decompose(
            module, *inputs, decomposition=table, should_decompose=asks_for_inductor, trace_joint_graph=False
        )
    for node, known in zip(made.graph.find_nodes(op="placeholder"), before, strict=True):
        graph_nodes.rename(node, known.name)
        node.target, node.meta = known.target, dict(known.meta)
    return made


def rematerialized(module: fx.GraphModule) -> tuple[fx.GraphModule, str]:
    """Recompute the values of checkpointed regions that an inner backward reads. Returns the graph and what was done.

    Edits the tags of `module`.
    """
    tagged = [node for node in module.graph.nodes if must_recompute(node)]
    if not tagged or not any(node.meta.get("autograd_backward") for node in module.graph.nodes):
        return module, ""
    if any(operators.is_random(node.target) for node in tagged):
        return module, "a region draws random numbers, so its values are saved instead of recomputed"
    try:
        made = remat_using_tags_for_fwd_loss_bwd_graph(module)
    except RuntimeError:
        return module, "several backwards read checkpointed regions, so their values are saved instead of recomputed"
    again = sum(node.name.endswith("_recomputed") for node in made.graph.nodes)
    return made, f"{again} nodes are recomputed where the inner backward reads them" if again else ""
