"""Which inputs belong together: those that overlap or share autograd history (docs/design/system.md C2).

Note [One history of all views]
A write to a view becomes part of the `grad_fn` of all views of its base, even of those that share no element with it:
in eager, the gradient of each view that is used afterwards also reaches the written value, as zeros. So two such inputs
form a group if the written value comes from another input that requires grad; that input's gradient would otherwise be
None.

Note [Places in a storage]
`as_strided` counts from the beginning of the storage. In a trace, an input that was written is a new tensor with memory
of its own. Unless the input filled its storage in the same way, the same numbers mean other elements. And a tensor with
gaps in the caller's memory may have none in the trace, so that `contiguous` and `reshape` do not copy. Such an input
becomes a view of its storage: a group of one.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

import torch

from aotviz.ir.view_and_mutation import InputAliasInfo
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional, overlap, views_of_no_grad_bases
from aotviz.tracing.callers_layouts import looks_contiguous
from aotviz.tracing.forward import Run
from aotviz.tracing.views import layout


def in_one_storage(forward: Run) -> list[list[int]]:
    """Positions of inputs that share a storage of which one is written: several, or one that must be a group."""
    by_storage: dict[Any, list[int]] = defaultdict(list)
    for position, value in enumerate(forward.program.args):
        if isinstance(value, torch.Tensor):
            by_storage[functional.storage(value)].append(position)
    changed = (ps for ps in by_storage.values() if any(written(forward.input_info[p]) for p in ps))
    return [ps for ps in changed if len(ps) > 1 or is_placed(forward, ps[0])]


def is_placed(forward: Run, position: int) -> bool:
    """Whether an input is written, and used in a way that depends on its storage; see Note [Places in a storage]."""
    argument = forward.args[position]
    if not forward.input_info[position].mutates_data or is_subclass(argument):
        return False
    passed = forward.program.args[position]
    placed = not fills_its_storage(passed) and forward.ledger.places_in(argument)
    return bool(placed) or looks_contiguous(forward.ledger, argument, layout(passed))


def fills_its_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor begins where its storage begins and is contiguous, like a new tensor."""
    return tensor.storage_offset() == 0 and tensor.is_contiguous()


def connected(forward: Run, positions: list[int]) -> list[tuple[int, ...]]:
    """Group inputs over one storage so that inputs of different groups neither overlap nor share gradients; see Note
    [One history of all views]."""
    places = overlap.groups([forward.program.args[p] for p in positions])
    sets = [tuple(positions[k] for k in group) for group in places]
    return overlap.merged(sets, functools.partial(_passes, forward))


def _passes(forward: Run, places: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Whether the gradient of one of these inputs reaches a value written earlier to one of the others."""
    ledger, graph, args = forward.ledger, forward.open.graph, forward.args
    return any(
        _share_history(forward, used, changed)
        and views_of_no_grad_bases.used_after(ledger, graph, forward.graph_input(used)[0], args[used], [args[changed]])
        for used in places
        for changed in others
    )


def _share_history(forward: Run, used: int, changed: int) -> bool:
    """Whether two inputs are views of one base to autograd, and one is written with a value from another input."""
    args = forward.program.args
    whole = root(args[used])
    if whole is args[used] or whole is not root(args[changed]):
        return False
    if not forward.input_info[changed].mutates_data:
        return False
    with forward.open.active("is_forward"):
        value = forward.args[changed]
        below = {functional.grad_fn(value), *functional.nodes_below(value)}
    outside = (e for e, a in zip(forward.edges, args, strict=True) if e is not None and root(a) is not whole)
    return any(edge.node in below for edge in outside)


def root(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose `grad_fn` determines that of `tensor`: its base, or itself if its `grad_fn` is independent.

    Independent are tensors that are not views, leaves made of views, views taken under no_grad, and views of another
    dtype.
    """
    base = base_of(tensor)
    if base is None or base.requires_grad != tensor.requires_grad or base.dtype.to_real() != tensor.dtype.to_real():
        return tensor
    return base


def written(info: InputAliasInfo) -> bool:
    """Whether the call changes what others see of its memory, even if it is then given another storage."""
    return info.mutates_data or info.leaves_data
