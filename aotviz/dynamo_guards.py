"""What a program takes for granted about its inputs, and Dynamo's own guards don't say.

Where two inputs were merged into one, that they are the same tensor becomes a guard of Dynamo's. That arguments share
memory, or do not, Dynamo has no guard for: a program that writes to an argument, compiled while no other shared its
memory, would give old values, silently, for a call in which one does. So the caller of such a program looks at the
storages first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.forms import Program
from aotviz.stages.dedupe import MergeDuplicates
from aotviz.torch_private import dynamo, functional, tensors
from aotviz.tracing.views import layout


def install(graph_module: Any, lifted: int, program: Program) -> None:
    """Add guards to the compilation that Dynamo has going. `lifted` inputs stand before the graph's own."""
    if not isinstance(graph_module, fx.GraphModule) or not dynamo.compiling():
        return
    sources = [None] * lifted + [dynamo.source(node) for node in graph_module.graph.find_nodes(op="placeholder")]
    for rewrite in program.lowered.rewrites:
        if isinstance(rewrite, MergeDuplicates):
            for index, place in enumerate(rewrite.position):
                first = rewrite.kept[place]
                if first != index:
                    dynamo.guard_same(sources[first], sources[index])


def separation(program: Program, lifted: int) -> Callable[[Sequence[Any]], bool] | None:
    """Tells whether the inputs of a call, without those `lifted`, lie as far apart as those of the compiled call.

    None where it does not matter: nothing that is passed anew at each call is written, or it is passed alone.
    """
    call = program.lowered
    facts = call.user_input_info
    static = set(facts.static_input_indices)
    passed = [i for i, value in enumerate(call.args) if i not in static and _has_memory(value)]
    if len(passed) < 2 or not any(facts.input_info[i].mutates_data for i in passed):
        return None
    count = Counter(functional.storage(call.args[i]) for i in passed)
    alone = [i for i in passed if count[functional.storage(call.args[i])] == 1]
    others = [i for i in passed if i not in alone]
    # Of those that shared a storage, overlapping ones were taken out of the graph's inputs, and look for themselves.
    free = [i for i in others if call.descriptors[i] in call.graph_inputs]
    pairs = [(i, j) for i in free for j in others if i != j and not _one_tensor(call.duplicate_of, i, j)]
    where = {i: layout(call.args[i]) for i in others}

    def apart(passed: Sequence[Any]) -> bool:
        inputs = [*[None] * lifted, *passed] if lifted else passed
        addresses = [address for i in alone if (address := inputs[i].untyped_storage().data_ptr())]
        seen = set(addresses)
        if len(seen) != len(addresses) or any(inputs[i].untyped_storage().data_ptr() in seen for i in others):
            return False
        return all(
            _disjoint(inputs[i], inputs[j]) or (layout(inputs[i]) == where[i] and layout(inputs[j]) == where[j])
            for i, j in pairs
        )

    return apart if alone or pairs else None


def _one_tensor(duplicate_of: Sequence[int | None], one: int, other: int) -> bool:
    first, second = duplicate_of[one], duplicate_of[other]
    return (one if first is None else first) == (other if second is None else second)


def _disjoint(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the bytes from the first to the last element of each do not meet."""
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr() or not (one.numel() and other.numel()):
        return True
    (first, end), (second, last) = tensors.span(one), tensors.span(other)
    return end <= second or last <= first


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not tensors.inside(value)
