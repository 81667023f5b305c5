"""What else holds the values that a call saves for its backward.

Saved tensors die with the backward that reads them, unless something outside shares their memory (docs/design/system.md
D6). Some are results of the call: a second derivative flows through these (runtime/double_backward.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import Split
from aotviz.ir.view_and_mutation import Ref
from aotviz.torch_private import operators
from aotviz.tracing import functional


def deaths(call: Split) -> list[tuple[bool, str]]:
    """For each saved value, whether only the backward can see it, and why."""
    forward, backward = call.forward_module.graph, call.backward_module.graph
    kept = Counter(functional.storage(s.value) for s in call.saved if functional.has_storage(s.value))
    holders = {
        "it shares memory with an input": _storages(graphs.placeholders(forward)),
        "it shares memory with an output": _storages(graphs.outputs(forward)[: len(call.slots)]),
        "a gradient is a view of it": _storages(graphs.outputs(backward)),
        "another saved tensor shares its memory": {key for key, count in kept.items() if count > 1},
    }

    def judge(value: Any) -> tuple[bool, str]:
        if not isinstance(value, torch.Tensor):
            return False, "a number has no memory"
        if not functional.has_storage(value):
            return False, "it is sparse and uses several storages"
        why = next((why for why, storages in holders.items() if functional.storage(value) in storages), None)
        return why is None, why or "nothing outside the backward shares its memory"

    return [judge(saved.value) for saved in call.saved]


def _storages(nodes: Iterable[Any]) -> set[Any]:
    values = (node.meta.get("val") for node in nodes if isinstance(node, fx.Node))
    return {functional.storage(value) for value in values if functional.has_storage(value)}


def saved_results(call: Split) -> dict[int, int]:
    """{position of a saved tensor: slot} for the saved tensors that are a result as the caller gets it. Autograd's own
    formulas save a `detach` of a result."""
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


def passed_unsaved(call: Split) -> list[Ref]:
    """The results that the backward does not take, although it reads values that were computed from them."""
    leading: set[str] = set()  # nodes whose values the backward depends on
    for node in reversed(call.graph_module.graph.nodes):
        if node.meta.get("partitioner_tag") == "is_backward" or any(user.name in leading for user in node.users):
            leading.add(node.name)
    kept, heard = set(saved_results(call).values()), {one.ref for one in call.hooked_results}
    unsaved = [n for n, node in _returned(call).items() if n not in kept and node.name in leading]
    return [ref for ref in (Ref("output", call.slots[n].index) for n in unsaved) if ref not in heard]


def _returned(call: Split) -> dict[int, fx.Node]:
    """{slot: node} for the nodes whose values the caller gets as they are, and can register hooks on."""
    if call.wrapping is not None:  # its slots are inner tensors of the results
        return {}
    return {
        number: node
        for number, (slot, node) in enumerate(zip(call.slots, graphs.outputs(call.forward_module.graph), strict=False))
        if slot.kind == "output" and slot.differentiable
        if isinstance(node, fx.Node) and not operators.is_view(node.target)
    }
