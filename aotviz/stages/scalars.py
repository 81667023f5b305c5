"""Compute with tensors instead of Python floats, so that one program serves every value of a float.

Dynamo passes a float that changes from call to call as a scalar tensor, and the graph begins by reading its value. Only
a graph that does so passes this stage: Dynamo makes one of a function that was called with a second value of a float.
Inductor has no code for floats, so torch's pass computes with the tensor instead. If an operator accepts the float only
as a number, its value is fixed: the pass asks Dynamo to trace the function again without that input. This runs before
the partitioner, or the backward would take floats.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import GraphCall, Reason, TracedCall
from aotviz.torch_private import dynamo, graph_nodes, scalar_tensors
from aotviz.torch_private.fake_tensors import FakeTensorMode, shape_env
from aotviz.torch_private.scalar_tensors import TensorifyScalarRestartAnalysis

_PROVENANCE = ("stack_trace", "nn_module_stack", "fwd_nn_module_stack", "seq_nr", "partitioner_tag", "custom")


def needed(call: TracedCall) -> bool:
    """Whether the forward computes with symbolic floats."""
    return any(isinstance(value, torch.SymFloat) for value in call.args) or bool(_reads(call.forward.graph()))


def run(call: GraphCall) -> GraphCall:
    """JointGraph -> JointGraph, or GraphCall -> GraphCall."""
    before = [_source(node) for node in _reads(call.graph_module.graph)]
    module = graphs.copy(call.graph_module)
    _as_tensors(module, call.fake_mode)
    left = {_source(node) for node in _reads(module.graph)}
    why = "it is a float that the graph takes as a tensor, so the graph is valid for every value"
    evidence = tuple(Reason(name, why) for name in dict.fromkeys(before) if name not in left)
    return replace(call, graph_module=module, evidence=evidence)


def _source(read: fx.Node) -> str:
    tensor = read.args[0]
    return str(tensor.meta.get("desc") or tensor.name) if isinstance(tensor, fx.Node) else str(tensor)


def _reads(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that read the value of a float tensor."""
    found = graph.find_nodes(op="call_function", target=scalar_tensors.READ)
    return [node for node in found if isinstance(node.meta.get("val"), torch.SymFloat)]


def _as_tensors(module: fx.GraphModule, fake_mode: FakeTensorMode) -> None:
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
            scalar_tensors.tensorify_python_scalars(module, shape_env(fake_mode), fake_mode)
    except TensorifyScalarRestartAnalysis:
        if dynamo.compiling():
            raise
        scalar_tensors.forget_what_to_fix()
    module.recompile()


def asks_for_restart(error: BaseException) -> bool:
    """Whether Dynamo is about to trace the function again with more knowledge."""
    return isinstance(error, TensorifyScalarRestartAnalysis)
