"""Symbolic Python floats as tensors, by torch's pass over the graph.

Dynamo passes a float that changes from call to call as a scalar tensor, and the graph begins by reading its value.
Inductor has no code for floats, so torch's pass computes with the tensor instead. If an operator accepts the float only
as a number, its value is fixed: the pass asks Dynamo to trace the function again without that input.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from aotviz.torch_private import dynamo, graph_nodes, scalar_tensors
from aotviz.torch_private.scalar_tensors import TensorifyScalarRestartAnalysis

_PROVENANCE = ("stack_trace", "nn_module_stack", "fwd_nn_module_stack", "seq_nr", "partitioner_tag", "custom")


def is_float(value: Any) -> bool:
    return isinstance(value, torch.SymFloat)


def reads(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that read the value of a float tensor."""
    found = graph.find_nodes(op="call_function", target=scalar_tensors.READ)
    return [node for node in found if is_float(node.meta.get("val"))]


def as_tensors(module: fx.GraphModule, fake_mode: Any) -> None:
    """Compute with tensors instead of symbolic floats, in place.

    Raises Dynamo's restart of its analysis if a float must be fixed and Dynamo is running. Otherwise the graph contains
    the value, and the guards check it.
    """
    new: set[fx.Node] = set()

    def created(node: fx.Node) -> None:
        """The pass puts new nodes behind the node that they replace, and erases that when it is done."""
        new.add(node)
        old = graph_nodes.newest(module.graph)
        while old in new:
            old = old.prev
        node.meta.update({name: old.meta[name] for name in _PROVENANCE if name in old.meta})

    try:
        with torch.no_grad(), scalar_tensors.told_of_new_nodes(module, created):
            scalar_tensors.tensorify_python_scalars(module, fake_mode.shape_env, fake_mode)
    except TensorifyScalarRestartAnalysis:
        if dynamo.compiling():
            raise
        scalar_tensors.forget_what_to_fix()
    module.recompile()


def asks_for_restart(error: BaseException) -> bool:
    """Whether Dynamo is about to trace the function again with more knowledge."""
    return isinstance(error, TensorifyScalarRestartAnalysis)
