"""Finish the traced graph (SYSTEM.md D2): remove dead code, and describe every input and output; put on each backward
node the source line of the forward node that it differentiates; run torch's passes over a whole graph. With its setting
`selective_decompose`, operators are decomposed only in regions annotated for Inductor. Checkpointed values are
recomputed for a backward that the function itself calls."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.descriptors import Descriptor, TangentInput
from aotviz.ir.forms import GraphCall, JointCall, JointGraph, Reason
from aotviz.torch_private import tracers
from aotviz.tracing import retracing
from aotviz.tracing.open_trace import link_backward_to_forward


def run(call: GraphCall) -> GraphCall:
    """JointCall -> JointGraph, or GraphCall -> GraphCall."""
    before = len(call.graph_module.graph.nodes)
    module = graphs.copy(call.graph_module)
    link_backward_to_forward(module.graph)
    module.graph.eliminate_dead_code()
    dropped = before - len(module.graph.nodes)
    reasons = [Reason("dead code", f"{dropped} unused nodes removed")] if dropped else []
    module = _retraced(call, module, reasons)
    _detach_what_is_scattered_to(module)
    inputs: list[Descriptor] = list(call.graph_inputs)
    results: list[Descriptor | None] = [slot.descriptor for slot in call.slots]
    if isinstance(call, JointCall):
        inputs += [TangentInput(call.slots[tangent.slot].descriptor) for tangent in call.tangents]
        results += [gradient.descriptor for gradient in call.gradients]
    for node, descriptor in zip(graphs.placeholders(module.graph), inputs, strict=True):
        node.meta["desc"] = descriptor
    graphs.output_node(module.graph).meta["desc"] = results
    evidence = tuple(reasons)
    if isinstance(call, JointCall):
        return call.then(JointGraph, graph_module=module, evidence=evidence)
    return replace(call, graph_module=module, evidence=evidence)


def _detach_what_is_scattered_to(module: fx.GraphModule) -> None:
    """Detach non-contiguous inputs of `as_strided_scatter`. The operator refuses such tensors if they require grad,
    though the graph is not differentiated. Only inputs may."""
    graph = module.graph
    found = graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided_scatter.default)
    for node in found:
        whole = node.args[0]
        if isinstance(whole, fx.Node) and whole.op == "placeholder" and not whole.meta["val"].is_contiguous():
            with graph.inserting_before(node):
                detached = graph.call_function(torch.ops.aten.detach.default, (whole,))
            detached.meta = {**node.meta, "val": whole.meta["val"].detach()}
            node.replace_input_with(whole, detached)
    if found:
        module.recompile()


def _retraced(call: GraphCall, module: fx.GraphModule, reasons: list[Reason]) -> fx.GraphModule:
    """Run torch's passes over the graph if they are enabled; appends to `reasons`."""
    if call.options.selective_decompose:
        asked = sum(map(tracers.asks_for_inductor, module.graph.nodes))
        reasons.append(Reason("decompositions", f"{asked} nodes are in regions that the user marked for Inductor"))
        if asked:
            inputs = graphs.values(graphs.placeholders(module.graph))
            module = retracing.decomposed_where_annotated(module, call.options.decompositions or {}, inputs)
    if call.options.remat_using_tags and not isinstance(call, JointCall):
        module, done = retracing.rematerialized(module)
        if done:
            reasons.append(Reason("checkpoints", done))
    return module
