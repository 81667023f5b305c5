"""Which inputs belong together: those that lie in one storage, that overlap, or that have one history (SYSTEM.md C2).

Note [One history of all views]
What is written to a view becomes part of the history of all views of that tensor, also of those that share no element
with it: in eager, the gradient of each that is used afterwards goes to what was written, as zeros. So two such inputs
are a group, if what was written is of another input that requires grad; that one's gradient would be None else.

Note [Places in a storage]
`as_strided` counts from where the storage begins. In a trace, an input that was written is a new tensor, alone in its
memory: unless the input lay like that in its storage too, the same numbers mean other elements. And what has gaps in
the caller's memory may have none there, so that `contiguous` and `reshape` make no copy. Then it becomes a view of its
storage, a group of one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from aotviz.ir.view_and_mutation import InputAliasInfo
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional, overlap, stale_uses
from aotviz.tracing.backward import nodes_below
from aotviz.tracing.forward import ForwardTrace


def in_one_storage(forward: ForwardTrace) -> list[list[int]]:
    """Positions of inputs over one storage, where one of them is written: several, or one that has to be a group."""
    by_storage: dict[Any, list[int]] = defaultdict(list)
    for position, value in enumerate(forward.program.args):
        if isinstance(value, torch.Tensor):
            by_storage[functional.storage(value)].append(position)
    changed = (ps for ps in by_storage.values() if any(written(forward.input_info[p]) for p in ps))
    return [ps for ps in changed if len(ps) > 1 or is_placed(forward, ps[0])]


def is_placed(forward: ForwardTrace, position: int) -> bool:
    """Whether an input is written, and seen in a way that depends on where it lies; see Note [Places in a storage]."""
    argument = forward.args[position]
    if not forward.input_info[position].mutates_data or is_subclass(argument):
        return False
    placed = not fills_its_storage(forward.program.args[position]) and forward.ledger.places_in(argument)
    return bool(placed) or forward.ledger.looks_contiguous(argument)


def fills_its_storage(tensor: torch.Tensor) -> bool:
    """Whether it begins where its storage does and has its elements in order, as a new tensor has."""
    return tensor.storage_offset() == 0 and tensor.is_contiguous()


def connected(forward: ForwardTrace, positions: list[int]) -> list[list[int]]:
    """Inputs over one storage, in sets: an input overlaps none of another set, and its gradient reaches none."""
    sets = [[positions[k] for k in places] for places in overlap.groups([forward.program.args[p] for p in positions])]
    return _with_one_history(forward, sets)


def _with_one_history(forward: ForwardTrace, sets: list[list[int]]) -> list[list[int]]:
    """The sets, those put together whose inputs share no element; see Note [One history of all views]."""
    for k, places in enumerate(sets):
        joined = [j for j, others in enumerate(sets) if j != k and _passes(forward, places, others)]
        if joined:
            merged = sorted(p for j in (k, *joined) for p in sets[j])
            rest = [others for j, others in enumerate(sets) if j not in (k, *joined)]
            return _with_one_history(forward, [merged, *rest])
    return sets


def _passes(forward: ForwardTrace, places: list[int], others: list[int]) -> bool:
    """Whether the gradient of one of these inputs goes to what was written before to one of the others."""
    return any(
        _share_history(forward, used, changed)
        and stale_uses.used_after(
            forward.ledger,
            forward.trace.graph,
            forward.graph_input(used)[0],
            forward.args[used],
            [forward.args[changed]],
        )
        for used in places
        for changed in others
    )


def _share_history(forward: ForwardTrace, used: int, changed: int) -> bool:
    """Whether two inputs are views of one tensor, to autograd, and to one is written what comes from outside."""
    args = forward.program.args
    whole = root(args[used])
    if whole is args[used] or whole is not root(args[changed]) or not whole.requires_grad:
        return False
    if not forward.input_info[changed].mutates_data:
        return False
    with forward.trace.active("is_forward"):
        value = forward.args[changed]
        below = {functional.grad_fn(value), *nodes_below(value)}
    outside = (e for e, a in zip(forward.edges, args, strict=True) if e is not None and root(a) is not whole)
    return any(edge.node in below for edge in outside)


def root(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that this one has its history from: itself, if it is no view, or a view whose history is its own.

    Such are a leaf made of a view, a view taken under no_grad, and one whose elements are of another type.
    """
    base = base_of(tensor)
    if base is None or base.requires_grad != tensor.requires_grad or base.dtype.to_real() != tensor.dtype.to_real():
        return tensor
    return base


def written(info: InputAliasInfo) -> bool:
    """Whether what others see of its memory changes. What is given another storage may have been written before."""
    return info.mutates_data or info.leaves_data
