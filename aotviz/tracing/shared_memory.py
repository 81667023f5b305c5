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
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir.forms import TracedCall
from aotviz.ir.refusals import Names
from aotviz.ir.storages import has_no_root
from aotviz.ir.view_and_mutation import InputAliasInfo, Layout
from aotviz.ir.wrapper_subclasses import is_subclass, parts_by_path
from aotviz.torch_private.tensors import base_of, is_custom_view
from aotviz.tracing import functional, overlap, views_of_no_grad_bases
from aotviz.tracing.events import MetadataOp, TensorNumber
from aotviz.tracing.ledger import Ledger
from aotviz.tracing.ran import Ran
from aotviz.tracing.views import contiguous, layout


def in_one_storage(forward: Ran) -> list[list[int]]:
    """Positions of inputs that share a storage of which one is written: several, or one that must be a group."""
    by_storage: dict[Any, list[int]] = defaultdict(list)
    for position, value in enumerate(forward.program.args):
        if isinstance(value, torch.Tensor):
            by_storage[functional.storage(value)].append(position)
    changed = (ps for ps in by_storage.values() if any(written(forward.input_info[p]) for p in ps))
    return [ps for ps in changed if len(ps) > 1 or is_placed(forward, ps[0])]


def is_placed(forward: Ran, position: int) -> bool:
    """Whether an input is written, and used in a way that depends on its storage; see Note [Places in a storage]."""
    argument = forward.args[position]
    if not forward.input_info[position].mutates_data or is_subclass(argument):
        return False
    passed = forward.program.args[position]
    placed = not fills_its_storage(passed) and forward.ledger.places_in(argument)
    return bool(placed) or _looks_contiguous(forward.ledger, argument, layout(passed))


def _looks_contiguous(ledger: Ledger, tensor: torch.Tensor, lies: Layout) -> bool:
    """Whether a view of a written tensor is contiguous in the trace but not in the caller's memory. There `contiguous`
    and `reshape` would copy, and the program would behave differently. `lies`: the tensor's layout before the run."""
    number = ledger.number(tensor)
    if not ledger.is_viewed(number) or not lies.concrete:
        return False
    moved: set[TensorNumber] = set()
    for event in ledger.events:
        if isinstance(event, MetadataOp):
            moved.add(event.tensor)
            lies = event.where or lies if event.tensor == number else lies
        for view, where in ledger.views_of_memory(number, (event,)):
            _, path = ledger.path(view)
            passed = any(one.source in moved and one.source != number for one, _ in path)
            looks = where.concrete and contiguous(where) and not passed
            if looks and not contiguous(ledger.layout_after(number, path, lies) or where):
                return True
    return False


def fills_its_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor begins where its storage begins and is contiguous, like a new tensor."""
    return tensor.storage_offset() == 0 and tensor.is_contiguous()


def connected(forward: Ran, positions: list[int]) -> list[tuple[int, ...]]:
    """Group inputs over one storage so that inputs of different groups neither overlap nor share gradients; see Note
    [One history of all views]."""
    places = overlap.groups([forward.program.args[p] for p in positions])
    sets = [tuple(positions[k] for k in group) for group in places]
    return overlap.merged(sets, functools.partial(_passes, forward))


def _passes(forward: Ran, places: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Whether the gradient of one of these inputs reaches a value written earlier to one of the others."""
    ledger, graph, args = forward.ledger, forward.open.graph, forward.args
    return any(
        _share_history(forward, used, changed)
        and views_of_no_grad_bases.used_after(ledger, graph, args[used], [args[changed]], forward.graph_input(used)[0])
        for used in places
        for changed in others
    )


def _share_history(forward: Ran, used: int, changed: int) -> bool:
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


# --- Conditions of rules (`rules.py`). ---


@dataclass(frozen=True, eq=False)
class Members:
    """Connected inputs, which are to be views of one base."""

    call: TracedCall
    places: tuple[int, ...]  # their positions

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [self.call.forward.program.args[p] for p in self.places]

    @property
    def names(self) -> str:
        return ", ".join(str(self.call.graph_inputs[p]) for p in self.places)


def bypasses_a_custom_view(one: Members) -> Iterator[Names]:
    """A custom Function returned a view: taken again from the base, its gradient would bypass that."""
    for p, tensor in zip(one.places, one.tensors, strict=True):
        if len(one.places) > 1 and tensor.requires_grad and is_custom_view(tensor):
            yield repr(str(one.call.graph_inputs[p])), "what another input views"


def reaches_outside(one: Members) -> Iterator[Names]:
    """A view that `as_strided` made of a single argument has elements that the argument does not have."""
    (first, *others), (tensor, *_) = one.places, one.tensors
    if not others and tensor.requires_grad:
        ledger, argument = one.call.forward.ledger, one.call.forward.args[first]
        if not all(overlap.covers(layout(tensor), view) for view in ledger.places_in(argument, before_a_write=True)):
            yield repr(one.names)


def is_set_elsewhere(one: Members) -> Iterator[Names]:
    if any(one.call.meta.input_info[p].mutates_storage_metadata for p in one.places):
        yield one.names


def are_subclasses(one: Members) -> Iterator[Names]:
    if any(map(is_subclass, (*one.tensors, *map(root, one.tensors)))):
        yield one.names


@dataclass(frozen=True, eq=False)
class Grouped:
    """A call, and which of its inputs are to be views of one base."""

    call: TracedCall
    groups: Sequence[Sequence[int]]


def resizes_a_view(one: Grouped) -> Iterator[Names]:
    """An input covers other elements after `resize_`, in memory that another input writes or has."""
    call, grouped = one.call, {place for places in one.groups for place in places}
    for places in in_one_storage(call.forward):
        several = len(places) > 1 and any(call.meta.input_info[place].mutates_data for place in places)
        for place in places if several else ():
            after, fake = call.meta.input_info[place].layout_after, call.forward.program.args[place]
            if after is not None and place not in grouped and not overlap.covers(layout(fake), after):
                yield repr(str(call.graph_inputs[place]))


def ends_another(one: Grouped) -> Iterator[tuple[bool, Names]]:
    """A write ends the autograd graph of another input, or of its views, and the two are not in one group."""
    group_of = {place: places for places in one.groups for place in places}
    for position, others in one.call.forward.program.known.no_grad_views.items() if one.groups else ():
        if any(group_of.get(other) is not group_of.get(position) for other in others):
            yield one.call.meta.input_info[position].is_leaf, repr(str(one.call.graph_inputs[position]))


@dataclass(frozen=True, eq=False)
class Rooted:
    """An input, or several, and the tensor that they take their `grad_fn` from."""

    name: str
    root: torch.Tensor
    moves: bool  # the function changes its shape or strides
    beside: Sequence[torch.Tensor] = ()  # the other roots, if this one is written


def loses_its_grad_fn(one: Rooted) -> Iterator[Names]:
    """It is a view with a `grad_fn` of its own, which a write replaces; or its base is used too, whose `grad_fn` would
    include that write."""
    base = base_of(one.root)
    replaced = functional.is_view_with_history(one.root) and (one.moves or not has_no_root(one.root))
    if replaced or (base is not None and any(other is base or base_of(other) is base for other in one.beside)):
        yield one.name


def has_overlapping_parts(call: TracedCall) -> Iterator[Names]:
    """A write to one input changes a part of another, which is a subclass. Views of one subclass are fine."""
    args, infos = call.forward.program.args, call.meta.input_info
    subclassed = any(map(is_subclass, args))
    tensors = [(p, one) for p, one in enumerate(args) if subclassed and isinstance(one, torch.Tensor)]
    parts = [(p, f"{call.graph_inputs[p]}{path}", part) for p, one in tensors for path, part in parts_by_path(one)]
    for (one, name, part), (other, other_name, known) in itertools.combinations(parts, 2):
        written = infos[one].mutates_data or infos[other].mutates_data
        apart = one == other or functional.storage(args[one]) != functional.storage(args[other])
        inner = is_subclass(args[one]) or is_subclass(args[other])
        same = written and apart and inner and functional.storage(part) == functional.storage(known)
        if same and overlap.overlap(part, known):
            yield f"{name} and {other_name}"
