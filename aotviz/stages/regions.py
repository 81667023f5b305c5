"""Partitioning of regions that a program marks with `torch.compiler.nested_compile_region` (docs/design/system.md D4).

Such a region leaves two nodes in a joint graph for each call: one runs the region's forward; the other, in the
backward, runs the region again from its inputs and then its gradients. So each region would be computed twice. This
stage takes the second graph, which is the region's own joint graph, runs the compiler's joint passes on it, partitions
it, and inserts both halves: the forward node returns what its backward node reads. All calls of a region share the two
halves. A region can have its own partitioner.

    before   forward: region(inputs) -> results                   backward: region(inputs, tangents) -> gradients
    after    forward: region(inputs) -> results, saved values     backward: region(saved values, tangents) -> gradients

Note [A region returns no views]
Inductor assumes that each result of a call has memory of its own, and may reuse the memory of a call's arguments after
their last use. So if a forward returned a view of an argument for its backward, the view would be overwritten; torch's
own gradients are wrong then. So a saved view is recreated in the backward, from the tensor that it is a view of.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import JointGraph, Reason
from aotviz.ir.partition_functions import drawing_once, region_partitioner
from aotviz.ir.refusals import briefly
from aotviz.options import Options
from aotviz.recording.sources import innermost
from aotviz.torch_private import graph_nodes, operators, versions
from aotviz.torch_private.partitioners import partitioning

_CALL = torch.ops.higher_order.invoke_subgraph


@dataclass(frozen=True)
class Halves:
    """One region, partitioned. The forward returns (results, symbols and tensors for the backward).

    `sources` says where the backward's inputs, except the tangents, come from: ("input", i) is the forward's argument,
    ("output", i) its result.
    """

    name: str
    forward: fx.GraphModule
    backward: fx.GraphModule
    inputs: int
    sources: tuple[tuple[str, int], ...]


def run(call: JointGraph) -> JointGraph:
    if not any(node.target is _CALL for node in call.graph_module.graph.nodes):
        return replace(call, evidence=())
    module, evidence = graphs.copy(call.graph_module), []
    with partitioning(module.graph, call.fake_mode):
        regions = cut_regions(module, call.options)
    for region in regions:
        names = [node.name for node in graphs.placeholders(region.backward.graph)][: len(region.sources)]
        why = f"its backward reads {', '.join(names) or 'nothing'} of its forward, and recomputes the rest"
        evidence.append(Reason(f"region {region.name}", why))
    return replace(call, graph_module=module, evidence=tuple(evidence))


def cut_regions(module: fx.GraphModule, options: Options) -> list[Halves]:
    """Partition the regions that `module` calls in both directions, and those inside them. Edits `module`."""
    pairs = _pairs(_calls(module, "fw"), _calls(module, "bw"))
    paired = [(forward, backward) for forward, backward in pairs if forward is not None]  # other backwards stay
    cut: dict[str, Halves] = {}  # by the backward's identifier
    for forward, backward in paired:
        identifier = str(backward.args[1])
        if identifier not in cut:
            cut[identifier] = _cut(module, forward, backward, options)
    for forward, backward in reversed(paired):
        region = cut[str(backward.args[1])]
        saved = _stitch_forward(module, forward, region)
        tangents = backward.args[2 + region.inputs :]
        made = _call(module, backward, f"partitioned_bw_{region.name}", region.backward, (*saved, *tangents))
        made.meta.pop("eager_input_vals", None)  # these belong to the old inputs
    if paired:
        module.graph.eliminate_dead_code()
        module.graph.lint()
        module.recompile()
    return list(cut.values())


def _calls(module: fx.GraphModule, direction: str) -> list[fx.Node]:
    nodes = module.graph.find_nodes(op="call_function", target=_CALL)
    return [node for node in nodes if str(node.args[1]).startswith(direction)]


def _pairs(forwards: list[fx.Node], backwards: list[fx.Node]) -> list[tuple[fx.Node | None, fx.Node]]:
    """Each backward with its forward, if that is in this graph. The last call's backward comes first."""
    if not versions.has("calls of regions are numbered") and len(forwards) == len(backwards):
        return list(zip(reversed(forwards), backwards, strict=True))
    by_call = {node.meta["custom"]["call_id"]: node for node in forwards if "call_id" in node.meta.get("custom", {})}
    return [(by_call.get(node.meta.get("custom", {}).get("call_id")), node) for node in backwards]


def _cut(module: fx.GraphModule, forward: fx.Node, backward: fx.Node, options: Options) -> Halves:
    first = _graph_of(module, forward)
    inputs, results = len(graphs.placeholders(first.graph)), len(graphs.outputs(first.graph))
    joint = _joint(_graph_of(module, backward), inputs, results)
    cut_regions(joint, options)
    values = graphs.values(graphs.placeholders(joint.graph))
    joint_inputs = (list(values[:inputs]), list(values[inputs:]))
    if options.joint_pass is not None:
        joint = options.joint_pass(joint, joint_inputs)
    name, own = str(backward.args[1]).removeprefix("bw_"), region_partitioner(forward)
    partition = own or options.partition_fn
    how = {"num_fwd_outputs": results, "static_lifetime_input_indices": []}
    try:
        one, other = drawing_once(joint, results, lambda module: partition(module, joint_inputs, **how))
    except Exception as error:
        line = innermost(str(forward.meta.get("stack_trace") or ""))
        if isinstance(error, NotImplementedError):  # a refusal
            raise
        if own is None:  # the whole program's, whose errors stay of their type
            error.add_note(f"aotviz: it was partitioning region {name} ({line})")
            raise
        raise RuntimeError(f"the partitioner of region {name} ({line}) raised {briefly(error)}") from error
    sources = _save_no_views(one, other, results)
    return Halves(name, one, other, inputs, sources)


def _graph_of(module: fx.GraphModule, call: fx.Node) -> fx.GraphModule:
    """The graph that a call of a region runs."""
    return getattr(module, str(call.all_input_nodes[0].target))


def _joint(module: fx.GraphModule, inputs: int, results: int) -> fx.GraphModule:
    """A region's joint graph in the form that partitioners expect: inputs by name, results before gradients."""
    joint = graphs.copy(module)
    for position, node in enumerate(graphs.placeholders(joint.graph)):
        name = f"primals_{position}" if position < inputs else f"tangents_{position - inputs}"
        graph_nodes.rename(node, name)
        node.target = name
    for node in joint.graph.nodes:
        node.meta.pop("partitioner_tag", None)  # all nodes are tagged as backward
    values = graphs.outputs(joint.graph)
    gradients = len(values) - results
    graphs.set_outputs(joint.graph, (*values[gradients:], *values[:gradients]))
    return joint


def _save_no_views(forward: fx.GraphModule, backward: fx.GraphModule, results: int) -> tuple[tuple[str, int], ...]:
    """See Note [A region returns no views]. Edits both; returns the backward's sources."""
    outputs, inputs = graphs.outputs(forward.graph), graphs.placeholders(forward.graph)
    tensors = [node for node in outputs[results:] if isinstance(node.meta["val"], torch.Tensor)]
    symbols = [node for node in outputs[results:] if node not in tensors]
    given = [node for node in graphs.placeholders(backward.graph) if "tangents" not in node.name]
    first = next(node for node in backward.graph.nodes if node.op != "placeholder")
    kept = [*outputs[:results], *symbols]
    sources = [("output", results + i) for i in range(len(symbols))]
    made: dict[fx.Node, fx.Node] = {}  # node of the forward -> node of the backward
    for value, old in zip(tensors, given[len(symbols) :], strict=True):
        chain = _views(value)
        root = chain[-1]
        if root not in made:
            made[root] = old
            if root is not value:
                with backward.graph.inserting_before(old):
                    made[root] = backward.graph.placeholder(root.name)
                made[root].meta = {**old.meta, "val": root.meta["val"]}
            if root not in inputs and root not in kept:
                kept.append(root)
            sources.append(("input", inputs.index(root)) if root in inputs else ("output", kept.index(root)))
        with backward.graph.inserting_before(first):
            for view in reversed(chain[:-1]):
                if view not in made:
                    made[view] = backward.graph.node_copy(view, made.__getitem__)
        if made[value] is not old:
            old.replace_all_uses_with(made[value])
            backward.graph.erase_node(old)
    graphs.set_outputs(forward.graph, kept)
    forward.graph.eliminate_dead_code()
    forward.recompile()
    backward.recompile()
    return tuple(sources)


def _views(node: fx.Node) -> list[fx.Node]:
    """A value, the value that it is a view of, and so on."""
    chain = [node]
    while operators.may_alias(chain[-1].target) and len(chain[-1].all_input_nodes) == 1:
        chain.append(chain[-1].all_input_nodes[0])
    return chain


def _stitch_forward(module: fx.GraphModule, old: fx.Node, region: Halves) -> list[Any]:
    """Call the new forward. Returns the values that the backward takes from it."""
    arguments = old.args[2:]
    new = _call(module, old, f"partitioned_fw_{region.name}", region.forward, arguments)
    saved: list[Any] = []
    place = new
    for kind, position in region.sources:
        if kind == "input":
            saved.append(arguments[position])
            continue
        with module.graph.inserting_after(place):
            place = module.graph.call_function(operator.getitem, (new, position))
        place.meta = {**new.meta, "val": new.meta["val"][position]}
        saved.append(place)
    return saved


def _call(module: fx.GraphModule, old: fx.Node, name: str, half: fx.GraphModule, args: Any) -> fx.Node:
    """Replace `old` by a call of `half`."""
    if not hasattr(module, name):
        module.add_module(name, half)
    graph = module.graph
    with graph.inserting_before(old):
        attribute = graph.get_attr(name)
        attribute.meta = dict(old.all_input_nodes[0].meta)
        new = graph.call_function(_CALL, (attribute, name, *args))
    new.meta = {**old.meta, "val": graphs.values(graphs.outputs(half.graph))}
    old.replace_all_uses_with(new)
    graph.erase_node(old)
    return new
