"""Finish the traced graph (SYSTEM.md D2): no dead code, a descriptor on every input and output, and on each
backward node the source line of the forward node that it differentiates."""

from __future__ import annotations

from dataclasses import replace

from aotviz.ir import graphs
from aotviz.ir.descriptors import Descriptor, TangentInput
from aotviz.ir.forms import GraphCall, JointCall, JointGraph, Reason
from aotviz.torch_private.open_trace import link_backward_to_forward


def run(call: GraphCall) -> GraphCall:
    """JointCall -> JointGraph, or GraphCall -> GraphCall."""
    before = len(call.graph_module.graph.nodes)
    module = graphs.copy(call.graph_module)
    link_backward_to_forward(module.graph)
    module.graph.eliminate_dead_code()
    inputs: list[Descriptor] = list(call.graph_inputs)
    results: list[Descriptor | None] = [slot.descriptor for slot in call.slots]
    if isinstance(call, JointCall):
        inputs += [TangentInput(call.slots[tangent.slot].descriptor) for tangent in call.tangents]
        results += [gradient.descriptor for gradient in call.gradients]
    for node, descriptor in zip(graphs.placeholders(module.graph), inputs, strict=True):
        node.meta["desc"] = descriptor
    graphs.output_node(module.graph).meta["desc"] = results
    dropped = before - len(module.graph.nodes)
    evidence = (Reason("dead code", f"{dropped} nodes that nothing uses are gone"),) if dropped else ()
    if isinstance(call, JointCall):
        fields = {name: getattr(call, name) for name in JointCall.__dataclass_fields__}
        return JointGraph(**{**fields, "graph_module": module, "evidence": evidence})
    return replace(call, graph_module=module, evidence=evidence)
