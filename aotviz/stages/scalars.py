"""Compute with tensors instead of Python floats, so that one program serves every value of a float.

Only a graph that reads the value of a float tensor passes this stage: Dynamo makes such a graph of a function that was
called with a second value of a float. It runs before the partitioner, or the backward would take floats.
"""

from __future__ import annotations

from dataclasses import replace

import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import GraphCall, Reason, TracedCall
from aotviz.tracing import symbolic_floats


def needed(call: TracedCall) -> bool:
    """Whether the forward computes with symbolic floats."""
    return any(map(symbolic_floats.is_float, call.args)) or bool(symbolic_floats.reads(call.forward.graph()))


def run(call: GraphCall) -> GraphCall:
    """JointGraph -> JointGraph, or GraphCall -> GraphCall."""
    before = [_source(node) for node in symbolic_floats.reads(call.graph_module.graph)]
    module = graphs.copy(call.graph_module)
    symbolic_floats.as_tensors(module, call.fake_mode)
    left = {_source(node) for node in symbolic_floats.reads(module.graph)}
    evidence = tuple(
        Reason(name, "it is a float that the graph takes as a tensor, so the graph is valid for every value")
        for name in dict.fromkeys(before)
        if name not in left
    )
    return replace(call, graph_module=module, evidence=evidence)


def _source(read: fx.Node) -> str:
    tensor = read.args[0]
    return str(tensor.meta.get("desc") or tensor.name) if isinstance(tensor, fx.Node) else str(tensor)
