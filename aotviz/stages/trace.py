"""Finish the traced graph (docs/design/system.md D2).

Removes dead code, describes every input and output, and puts on each backward node the source line of the forward node
that it differentiates; runs torch's passes over a whole graph. With its setting `selective_decompose`, operators are
decomposed only in regions annotated for Inductor. Checkpointed values are recomputed for a backward that the function
itself calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx as fx
import torch.fx.traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import selective_decompose

from aotviz.ir import graphs
from aotviz.ir.descriptors import Descriptor, TangentInput
from aotviz.ir.forms import GraphCall, JointCall, JointGraph, Reason
from aotviz.ir.refusals import Refused
from aotviz.torch_private import graph_nodes, operators
from aotviz.torch_private.partitioners import must_recompute, remat_using_tags_for_fwd_loss_bwd_graph
from aotviz.torch_private.tracers import asks_for_inductor
from aotviz.tracing import fakes
from aotviz.tracing.open_trace import link_backward_to_forward


def run(call: GraphCall) -> GraphCall:
    """JointCall -> JointGraph, or GraphCall -> GraphCall.

    Raises:
        Refused: "trace inside".
    """
    before = len(call.graph_module.graph.nodes)
    module = graphs.copy(call.graph_module)
    link_backward_to_forward(module.graph)
    module.graph.eliminate_dead_code()
    if not (call.is_graph or call.given_fakes):
        constants = (getattr(module, str(node.target), None) for node in module.graph.find_nodes(op="get_attr"))
        if any(map(fakes.is_fake, constants)):
            raise Refused("trace inside", call.name)
    dropped = before - len(module.graph.nodes)
    reasons = [Reason("dead code", f"{dropped} unused node{'s' if dropped > 1 else ''} removed")] if dropped else []
    if call.options.selective_decompose:
        asked = sum(map(asks_for_inductor, module.graph.nodes))
        reasons.append(Reason("decompositions", f"{asked} nodes are in regions that the user marked for Inductor"))
        if asked:
            module = _decomposed_where_annotated(module, call.options.decompositions or {})
    if call.options.remat_using_tags and not isinstance(call, JointCall):
        module, done = _rematerialized(module)
        if done:
            reasons.append(Reason("checkpoints", done))
    _detach_what_is_scattered_to(module)
    inputs: list[Descriptor] = list(call.graph_inputs)
    results: list[Descriptor | None] = [slot.descriptor for slot in call.slots]
    if isinstance(call, JointCall):
        inputs += [TangentInput(call.slots[tangent.slot].descriptor) for tangent in call.tangents]
        results += [gradient.descriptor for gradient in call.gradients]
    for node, descriptor in zip(graphs.placeholders(module.graph), inputs, strict=True):
        node.meta["desc"] = descriptor
    graphs.output_node(module.graph).meta["desc"] = results
    kind = JointGraph if isinstance(call, JointCall) else type(call)
    return call.then(kind, graph_module=module, evidence=tuple(reasons))


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


def _decomposed_where_annotated(module: fx.GraphModule, table: Mapping[Any, Any]) -> fx.GraphModule:
    """The graph, with `table` applied to the regions that the user annotated for Inductor by
    `torch.fx.traceback.annotate({"compile_with_inductor": ...})`."""
    before = graphs.placeholders(module.graph)
    inputs = graphs.values(before)
    with fx_traceback.preserve_node_meta():
        made = selective_decompose(
            module, *inputs, decomposition=table, should_decompose=asks_for_inductor, trace_joint_graph=False
        )
    for node, known in zip(graphs.placeholders(made.graph), before, strict=True):
        graph_nodes.rename(node, known.name)
        node.target, node.meta = known.target, dict(known.meta)
    return made


def _rematerialized(module: fx.GraphModule) -> tuple[fx.GraphModule, str]:
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
