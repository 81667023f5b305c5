"""Cut the joint graph in two: a forward that keeps values, and a backward that takes them (SYSTEM.md D3).

Note [Old values of mutated inputs]
A partitioner is free to recompute a value in the backward from any graph input. By then a mutated input has been
overwritten, in the graph or by the wrapper, and the recomputed value is wrong without a sign. So before the cut,
what the backward could read of a mutated input is read through a clone that must be saved. This comes after the
compiler's own joint passes, which would take the clone for waste.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.descriptors import SavedInput, SavedOutput, TangentInput
from aotviz.ir.forms import JointGraph, Reason, SavedTensor, Split
from aotviz.torch_private import operators
from aotviz.torch_private.partitioners import must_save, partitioning

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def run(call: JointGraph) -> Split:
    """JointGraph -> Split."""
    module = graphs.copy(call.graph_module)
    inputs = graphs.values(graphs.placeholders(module.graph))
    count = len(call.graph_inputs)
    joint_inputs = (list(inputs[:count]), list(inputs[count:]))
    with partitioning(call.fake_mode):
        if call.options.joint_pass is not None:
            module = call.options.joint_pass(module, joint_inputs)
        protected = _protect_old_values(call, module)
        descriptors = {node.name: node.meta.get("desc") for node in graphs.placeholders(module.graph)}
        forward, backward = call.options.partition_fn(
            module,
            joint_inputs,
            num_fwd_outputs=len(call.slots),
            static_lifetime_input_indices=list(call.meta.static_input_indices),
        )
    saved = _saved(call, forward, protected)
    _describe(call, forward, backward, descriptors)
    evidence = [Reason(value.name, value.why) for value in saved]
    evidence += [Reason(name, "a copy of a mutated input's old value, for the backward") for name in sorted(protected)]
    fields = {name: getattr(call, name) for name in JointGraph.__dataclass_fields__ if name != "evidence"}
    return Split(
        **fields, evidence=tuple(evidence), forward_module=forward, backward_module=backward, saved=tuple(saved)
    )


def _protect_old_values(call: JointGraph, module: fx.GraphModule) -> set[str]:
    """See Note [Old values of mutated inputs]. Returns the names of the clones."""
    graph = module.graph
    inputs = graphs.placeholders(graph)
    mutated = [inputs[i] for i, info in enumerate(call.meta.input_info) if info.mutated]
    if not mutated:
        return set()
    reaches: dict[fx.Node, bool] = {}
    for node in reversed(graph.nodes):
        backward = node.meta.get("partitioner_tag") == "is_backward" and node.op != "placeholder"
        reaches[node] = backward or any(reaches[user] for user in node.users if user.op != "output")
    first = next(node for node in graph.nodes if node.op != "placeholder")
    names: set[str] = set()
    for node in mutated:
        users = [user for user in node.users if user.op != "output" and not _writes_to(user, node)]
        if not any(reaches[user] for user in users):
            continue
        with graph.inserting_before(first):
            clone = graph.call_function(torch.ops.aten.clone.default, (node,))
        clone.meta["val"] = node.meta["val"].detach().clone()
        clone.meta["partitioner_tag"] = "is_forward"
        must_save(clone)
        for user in users:
            user.replace_input_with(node, clone)
        names.add(clone.name)
    if names:
        module.recompile()
    return names


def _writes_to(user: fx.Node, node: fx.Node) -> bool:
    return graphs.is_input_mutation(user) and user.args[0] is node


def _saved(call: JointGraph, forward: fx.GraphModule, protected: set[str]) -> list[SavedTensor]:
    kept = graphs.outputs(forward.graph)[len(call.slots) :]
    partitioner = getattr(call.options.partition_fn, "__name__", "partition_fn")
    saved = []
    for node in kept:
        if not isinstance(node, fx.Node):
            raise TypeError(f"{partitioner} saved {node!r} for the backward; it may save only nodes of the graph")
        value = node.meta.get("val")
        stack = node.meta.get("nn_module_stack") or {}
        saved.append(
            SavedTensor(
                name=node.name,
                is_symbol=isinstance(value, (*_SYMBOLIC, int, float, bool)),
                value=value,
                producer=str(node.meta.get("desc") or node.target),
                stack=node.meta.get("stack_trace") or "",
                module=next((str(entry[0]) for entry in reversed(stack.values())), ""),
                why=_why(node, protected, partitioner),
                is_view=node.op == "placeholder" or node.target is operator.getitem or operators.is_view(node.target),
            )
        )
    saved.sort(key=lambda one: one.is_symbol)  # stable: the partitioner's order within each kind
    if [one.name for one in saved] != [node.name for node in kept]:
        raise ValueError(f"{partitioner} must save tensors first, then symbolic numbers")
    return saved


def _why(node: fx.Node, protected: set[str], partitioner: str) -> str:
    if node.name in protected:
        return "the call overwrites this input, so its old value is kept"
    if node.op == "placeholder":
        return "an input, kept as it is: it costs no memory of its own"
    tag = node.meta.get("recompute")
    if tag is not None:
        return f"tagged {getattr(tag, 'name', tag)} by checkpointing"
    if operators.is_random(node.target):
        return "random: computing it again would give another value"
    if partitioner == "default_partition":
        return "the backward reads it"
    readers = [user.name for user in node.users if user.op != "output"]
    detail = f"; {len(readers)} forward nodes read it too" if readers else ""
    return f"{partitioner} found keeping it cheaper than computing it again{detail}"


def _describe(call: JointGraph, forward: fx.GraphModule, backward: fx.GraphModule, known: dict[str, Any]) -> None:
    """Descriptors on both halves; partitioners keep those of the placeholders only."""
    for node in graphs.placeholders(forward.graph):
        node.meta["desc"] = known.get(node.name) or node.meta.get("desc")
    kept = graphs.outputs(forward.graph)[len(call.slots) :]
    saved_names = [SavedOutput(node.name) for node in kept]
    graphs.output_node(forward.graph).meta["desc"] = [*(slot.descriptor for slot in call.slots), *saved_names]
    for node in graphs.placeholders(backward.graph):
        desc = known.get(node.name)
        node.meta["desc"] = desc if isinstance(desc, TangentInput) else SavedInput(node.name)
    joint = graphs.output_node(call.graph_module.graph).meta["desc"]
    graphs.output_node(backward.graph).meta["desc"] = list(joint[len(call.slots) :])
