"""Results of a call that its backward reads: a second derivative goes on from them (runtime/double_backward.py)."""

from __future__ import annotations

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import Split
from aotviz.ir.view_and_mutation import Ref
from aotviz.torch_private import operators


def saved(call: Split) -> dict[int, int]:
    """Of the saved tensors, by position, those that are a result as the caller gets it, with its slot. Autograd's own
    formulas save a `detach` of it."""
    slots = {node.name: number for number, node in reversed(_returned(call).items())}  # the first slot of each
    kept = {node.name: node for node in graphs.outputs(call.forward_module.graph)[len(call.slots) :]}
    found = {}
    for position, one in enumerate(call.saved[: call.saved_tensor_count]):
        node = kept[one.name]
        if node.target is torch.ops.aten.detach.default:
            node = node.args[0]
        if node.name in slots and one.checked and not one.hook:
            found[position] = slots[node.name]
    return found


def passed(call: Split) -> list[Ref]:
    """The results that a second derivative of the call may pass, and that may be at hand by then."""
    if call.wrapping is not None:
        return []
    kept = (Ref("output", call.slots[number].index) for number in saved(call).values())
    return list(dict.fromkeys([*kept, *(one.ref for one in call.heard)]))


def passed_unsaved(call: Split) -> list[Ref]:
    """The results from which values were computed that the backward reads, where the backward is not given them."""
    leading: set[str] = set()  # to the backward
    for node in reversed(call.graph_module.graph.nodes):
        if node.meta.get("partitioner_tag") == "is_backward" or any(user.name in leading for user in node.users):
            leading.add(node.name)
    kept, heard = set(saved(call).values()), {one.ref for one in call.heard}
    unsaved = [n for n, node in _returned(call).items() if n not in kept and node.name in leading]
    return [ref for ref in (Ref("output", call.slots[n].index) for n in unsaved) if ref not in heard]


def _returned(call: Split) -> dict[int, fx.Node]:
    """By slots, the nodes whose values the caller gets as they are, and can hang hooks on."""
    if call.wrapping is not None:  # its slots are parts of the results
        return {}
    infos = call.meta.output_info
    return {
        number: node
        for number, (slot, node) in enumerate(zip(call.slots, graphs.outputs(call.forward_module.graph), strict=False))
        if slot.kind == "output" and slot.differentiable and not slot.hidden and isinstance(node, fx.Node)
        if infos[slot.index].made is None and not infos[slot.index].new_leaf and not operators.is_view(node.target)
    }
