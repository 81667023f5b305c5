"""Inputs that overlap in memory, one of them mutated (docs/design/system.md C2).

A functional graph cannot express that writing `a` changes `b`. So the inputs of such a group are replaced by their
common base, and the traced function recreates them as views of it: then the base is written, and all of them see it.
Inputs that share a storage without overlapping are left alone.

Note [Memory and history]
Tensors can share memory without sharing an autograd graph: `x` and `x.detach()` do. If autograd considers all inputs of
a group views of one tensor, that tensor is the base. Otherwise the base is their storage, a flat tensor without
autograd state. Each tensor with a `grad_fn` of its own, a root, is recreated in the trace as a detached view of the
base with the autograd state of the root. The root is also an input of the graph whose elements are never read: its
gradient goes there, and it gets the `grad_fn` that the function gives it.

Note [The whole base is written back]
After the graph, a base is written as a whole, even if it is larger than what its members cover. An input in that memory
that was written separately would lose its data and its gradients. So it becomes a member of the group, though it
overlaps no other member. This may enlarge the base, to another tensor or the storage, so the check is repeated.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotviz.ir.descriptors import InputDescriptor, PlainInput, RootInput, SyntheticBaseInput
from aotviz.ir.forms import Emitter, Reason, TracedCall
from aotviz.ir.refusals import Refused, refuse
from aotviz.ir.storages import has_no_root, is_root, lie_in, storage_as_tensor
from aotviz.ir.symbolic_sizes import hint
from aotviz.ir.view_and_mutation import Count, Layout, Ref, ReplayStep, Write, count_writes
from aotviz.ir.wrapper_subclasses import is_subclass, like_in_autograd
from aotviz.runtime import call_differs, gradient_hooks
from aotviz.torch_private.tensors import base_of, is_custom_view, is_dense
from aotviz.tracing import functional, overlap, rules, shared_memory
from aotviz.tracing.forward import Run
from aotviz.tracing.program import StandIn, WithMembers
from aotviz.tracing.replay import first_unseen_view
from aotviz.tracing.shared_memory import Grouped, Members, Rooted
from aotviz.tracing.views import lying_like, specialised
from aotviz.tracing.views_of_no_grad_bases import ViewOfNoGradBase, viewed_like


@dataclass(frozen=True, eq=False)
class Root:
    """A tensor over the storage of a group with a `grad_fn` of its own, and the inputs that are views of it."""

    fake: Any
    members: tuple[int, ...]
    itself: int | None  # the member that it is; None if it is only their `_base`
    moves: bool  # a metadata op changes that member in place; see Note [Inputs changed in place] in tracing/forward.py
    counter: int  # number of its version counter: roots that are each other's `.detach()` share one

    @property
    def is_view_of_no_grad_base(self) -> bool:
        """See tracing/views_of_no_grad_bases.py."""
        return has_no_root(self.fake) and bool(self.fake.requires_grad)


@dataclass(frozen=True)
class Group:
    """Inputs that become views of one base. Positions count the inputs before the rewrite."""

    members: tuple[int, ...]
    fakes: tuple[Any, ...]  # one per member
    base: Any  # the fake base
    base_layout: Layout
    same: tuple[tuple[int, int], ...]  # (position, member) of further occurrences of the same tensor
    itself: int | None  # the member that is the base
    roots: tuple[Root, ...] = ()
    tied: bool = False  # roots are inputs of the graph; if not, nothing in the call requires grad

    @property
    def positions(self) -> tuple[int, ...]:
        return (*self.members, *(position for position, _ in self.same))

    @property
    def apart(self) -> tuple[int, ...]:
        """Members that overlap no other; see Note [The whole base is written back]."""
        return tuple(self.members[places[0]] for places in overlap.groups(self.fakes) if len(places) == 1)


@dataclass(frozen=True)
class TensorGroup(Group):
    """The base is the tensor that they are views of. It has no roots."""

    source: int = field(kw_only=True)  # a member that is the base or a view of it
    rooted: tuple[bool, ...] = field(kw_only=True)  # one per member: it shares the base's memory, but is no view of it


class StorageGroup(Group):
    """The base is their storage; see Note [Memory and history]."""


class _NewHistory(Exception):
    """A member that is not a view of a TensorGroup's base gets a `grad_fn`, which the base cannot give it. Its argument
    are the members."""


@dataclass(frozen=True)
class SyntheticBases:
    """Graph inputs are the bases, one per group, then the roots of each, then the inputs outside all groups."""

    groups: tuple[Group, ...]
    others: tuple[int, ...]
    names: tuple[str, ...]  # one per input before the rewrite
    members_with_grad_fn: tuple[int, ...]  # inputs that have a grad_fn after the call, because their base got one

    @property
    def roots(self) -> list[Root]:
        """One per graph input between the bases and the others."""
        return [root for group in self.groups if group.tied for root in group.roots]

    @property
    def wholes(self) -> list[Group | Root]:
        """One per graph input before the others."""
        return [*self.groups, *self.roots]

    @property
    def place_of_root(self) -> dict[int, int]:
        """Id of such a root -> graph input."""
        return {id(root): len(self.groups) + k for k, root in enumerate(self.roots)}

    def traced(self, fn: Any, no_grad_views: list[ViewOfNoGradBase]) -> Any:
        """`fn` on bases: recreates the members as views, returns them with the result, appends to `no_grad_views`."""

        storages = frozenset(k for k, group in enumerate(self.groups) if isinstance(group, StorageGroup))

        def with_bases(*inputs: Any) -> WithMembers:
            made = _Members(self, inputs, no_grad_views)
            result = fn(*made.whole)
            members_with_grad_fn = frozenset(p for p, member in made.members.items() if not member.is_leaf)
            self._refuse_new_history(made.whole)
            return WithMembers(result, made.members, made.shared, made.stand_ins, storages, members_with_grad_fn)

        return with_bases

    def _refuse_new_history(self, whole: list[Any]) -> None:
        for group in self.groups:
            if isinstance(group, TensorGroup):
                if any(r and whole[p].requires_grad for p, r in zip(group.members, group.rooted, strict=True)):
                    raise _NewHistory(group.members)
            elif not group.tied:
                gained = next((p for p in group.members if whole[p].requires_grad), None)
                if gained is not None:
                    raise Refused("a leaf made inside", repr(self.names[gained]))

    def inputs(self, emit: Emitter, variables: list[str]) -> list[str]:
        bases: list[str] = []
        roots: list[str] = []
        for group in self.groups:
            for position in group.members:
                emit.member(position, variables[position])
            names = self._names(group)
            for position, member in group.same:
                call_differs.check_same(emit, self.names, variables, position, member, through_others=True)
            self._refuse_hooks(emit, group, variables)
            fact = f"{names} {'share memory' if group.apart else 'overlap'} and are written through "
            if group.itself is not None:
                bases.append(variables[group.itself])
            else:
                bases.append(emit.fresh("base"))
                if isinstance(group, TensorGroup):
                    found = f"{emit.bind('base_of', base_of)}({variables[group.source]})"
                    fact += "one base"
                else:
                    whole = emit.bind("storage_as_tensor", storage_as_tensor)
                    dtype = emit.bind(str(group.base.dtype).removeprefix("torch."), group.base.dtype)
                    found = f"{whole}({variables[group.members[0]]}, {dtype}, {group.base_layout.size[0]})"
                    fact += "their storage"
                emit.line(f"{bases[-1]} = {found}", fact, names)
            self._check(emit, group, bases[-1], variables)
            if group.tied:
                roots += self._roots(emit, group, variables)
        return [*bases, *roots, *(variables[p] for p in self.others)]

    def _names(self, group: Group) -> str:
        return " and ".join(self.names[p] for p in group.members)

    def _roots(self, emit: Emitter, group: Group, variables: list[str]) -> list[str]:
        """Write the lines that find the roots of a group. Returns their variables."""
        names = self._names(group)
        roots: list[str] = []
        wrong: list[str] = []
        for root in group.roots:
            variable = variables[root.members[0]] if root.itself is None else variables[root.itself]
            if root.itself is None:
                viewed, variable = variable, emit.fresh("root")
                about = " and ".join(self.names[p] for p in root.members)
                fact = f"{about}: gradients flow through their base"
                emit.line(f"{variable} = {emit.bind('base_of', base_of)}({viewed})", fact, about)
            wrong += [f"{variable} is {other}" for other in roots]
            roots.append(variable)
            where = specialised(root.fake)
            facts = f"{emit.bind(str(root.fake.dtype).removeprefix('torch.'), root.fake.dtype)}, "
            facts += f"{root.fake.requires_grad}, {where.size}, {where.stride}, {where.offset}"
            views = [variables[p] for p in root.members if p != root.itself]
            wrong.append(f"not {emit.bind('is_root', is_root)}({', '.join([variable, facts, *views])})")
        message = f"{names} are views of other tensors than when this was compiled."
        fact = f"{names} have the same bases as at compile time"
        call_differs.check(emit, " or ".join(wrong), message, fact, names)
        return roots

    def _refuse_hooks(self, emit: Emitter, group: Group, variables: list[str]) -> None:
        """Emit a check: a hook on a view member would never fire, because its gradient flows to the base or a root."""
        own = [group.itself, *(root.itself for root in group.roots)]
        views = ((p, fake) for p, fake in zip(group.members, group.fakes, strict=True) if p not in own)
        hooked = [p for p, fake in views if fake.requires_grad and not fake.is_leaf]
        if hooked:
            listens = emit.bind("listens", gradient_hooks.listens)
            either = " or ".join(f"{listens}({variables[p]})" for p in hooked)
            names = " and ".join(self.names[p] for p in hooked)
            refuse = emit.bind("refuse_hooked_alias", call_differs.refuse_hooked_alias)
            fact = "a hook on a view would never run: gradients flow to its base"
            emit.line(f"if {either}: {refuse}({names!r})", fact, names)
            custom, fact = emit.bind("is_custom_view", is_custom_view), "gradients of such a view pass the function"
            differs = " or ".join(f"{custom}({variables[p]})" for p in hooked)
            message = f"{names} is now a view that a custom autograd.Function returned."
            call_differs.check(emit, differs, message, fact, names)

    def _check(self, emit: Emitter, group: Group, base: str, variables: list[str]) -> None:
        """Emit a check: the members' offsets and strides are fixed in the graph, and Dynamo does not guard them."""
        names, where = self._names(group), group.base_layout
        lie = emit.bind("lie_in", lie_in)
        offsets = [int(fake.storage_offset()) for fake in group.fakes]
        places = ", ".join(f"({variables[p]}, {offset})" for p, offset in zip(group.members, offsets, strict=True))
        message = f"{names} do not overlap in memory as they did when this was compiled."
        fact = f"{names} have the same offsets and strides in their base as at compile time"
        differs = f"not {lie}({base}, {where.size}, {where.stride}, {places})"
        call_differs.check(emit, differs, message, fact, names)

    def after(self, emit: Emitter, variables: list[str], rewritten: list[str]) -> None:
        for position in self.members_with_grad_fn:
            name = self.names[position]
            fact = f"reading grad_fn makes autograd notice that the base of {name} now requires grad"
            emit.line(f"{variables[position]}.grad_fn", fact, name)


class _Members:
    """The inputs that the function gets, made from the graph's inputs inside a trace."""

    def __init__(self, rewrite: SyntheticBases, inputs: Sequence[Any], no_grad_views: list[ViewOfNoGradBase]) -> None:
        self.no_grad_views = no_grad_views
        self.whole: list[Any] = [None] * len(rewrite.names)
        self.members: dict[int, Any] = {}
        self.shared: dict[int, int] = {}
        self.stand_ins: dict[int, StandIn] = {}
        roots = rewrite.place_of_root
        for position, value in zip(rewrite.others, inputs[len(rewrite.groups) + len(roots) :], strict=True):
            self.whole[position] = value
        for number, (group, base) in enumerate(zip(rewrite.groups, inputs, strict=False)):
            if isinstance(group, TensorGroup):
                self._views(group, base, number)
            fakes = dict(zip(group.members, group.fakes, strict=True))
            data: Any = torch.Tensor.data  # not noted as the user's own `.data`
            counting = {root.counter: data.__get__(base) for root in group.roots}
            for root in group.roots:
                self._root(group, counting[root.counter], root, fakes, roots.get(id(root)))
            for position, member in group.same:
                self.whole[position] = self.whole[member]

    def _views(self, group: TensorGroup, base: Any, number: int) -> None:
        for position, like, rooted in zip(group.members, group.fakes, group.rooted, strict=True):
            if position == group.itself:
                self.whole[position] = base
                continue
            value = self._viewed(base, group.base_layout, like)
            with torch.enable_grad():
                self._member(position, value.detach() if rooted else value)
            self.shared[position] = number

    @staticmethod
    def _viewed(base: Any, lies: Layout, like: Any) -> Any:
        """A view of a base that lies like a member. If that was taken under no_grad, it is a leaf, and so is this."""
        with torch.set_grad_enabled(not (like.is_leaf and base.requires_grad)):
            return lying_like(base, lies, like)

    def _root(self, group: Group, base: Any, root: Root, fakes: dict[int, Any], number: int | None) -> None:
        made = lying_like(base, group.base_layout, root.fake).detach()
        if number is not None:
            made = viewed_like(made, root.fake) if root.is_view_of_no_grad_base else like_in_autograd(root.fake, made)
            before = functional.Before.of(made)
            self.stand_ins[number] = StandIn(made, before, before.edge)
            if root.is_view_of_no_grad_base:
                self.no_grad_views.append(ViewOfNoGradBase(made, not root.fake.is_leaf, before))
        for position in root.members:
            if position != root.itself:
                self._member(position, self._viewed(made, specialised(root.fake), fakes[position]))
            elif number is None or root.moves:
                with torch.enable_grad():
                    self._member(position, made.view(made.shape) if root.moves else made)
            else:
                self.whole[position] = made

    def _member(self, position: int, value: Any) -> None:
        self.members[position] = self.whole[position] = value


def run(call: TracedCall) -> TracedCall:
    refuse(rules.OF_PARTS, call)
    by_storage: set[tuple[int, ...]] = set()
    while True:
        groups = _groups(call, by_storage)
        refuse(rules.OF_GROUPS, Grouped(call, [group.positions for group in groups]))
        if not groups:
            why = "they share a storage but do not overlap, so each is a separate graph input"
            sharing = shared_memory.in_one_storage(call.forward)
            names = (", ".join(str(call.graph_inputs[p]) for p in places) for places in sharing)
            return replace(call, evidence=tuple(Reason(name, why) for name in names))
        try:
            return _rewritten(call, tuple(groups))
        except _NewHistory as found:
            by_storage.update(found.args)


def _rewritten(call: TracedCall, groups: tuple[Group, ...]) -> TracedCall:
    grouped = {p for group in groups for p in group.positions}
    others = tuple(p for p in range(len(call.graph_inputs)) if p not in grouped)
    names = tuple(map(str, call.graph_inputs))
    rewrite = SyntheticBases(groups, others, names, ())
    args, roots = call.forward.program.args, rewrite.roots
    place = {p: len(groups) + len(roots) + k for k, p in enumerate(others)}
    no_grad_views: list[ViewOfNoGradBase] = []
    forward = call.forward.rerun(
        fn=rewrite.traced(call.forward.program.fn, no_grad_views),
        args=[*(group.base for group in groups), *(root.fake for root in roots), *(args[p] for p in others)],
        known=call.forward.program.known.placed(place),
        made_no_grad_views=no_grad_views if any(root.is_view_of_no_grad_base for root in roots) else None,
    )
    for root, info in zip(roots, forward.input_info[len(groups) :], strict=False):
        beside = [other.fake for other in roots if other is not root] if info.mutates_data else []
        refuse(rules.OF_ROOT, Rooted(repr(names[root.members[0]]), root.fake, root.moves, beside))
    rewrite = replace(rewrite, members_with_grad_fn=_members_with_grad_fn(rewrite, forward))
    traced = call.retraced(
        forward,
        graph_inputs=_descriptors(call, rewrite),
        static_inputs=tuple(place[i] for i in call.meta.static_input_indices if i in place),
        rewrite=rewrite,
        evidence=tuple(Reason(names[p], _why(group, p, names)) for group in groups for p in group.members),
    )
    return replace(traced, meta=replace(traced.meta, replay=_counting(call, rewrite, traced.meta.replay)))


def _descriptors(call: TracedCall, rewrite: SyntheticBases) -> tuple[InputDescriptor, ...]:
    def described(whole: Group | Root) -> InputDescriptor:
        if whole.itself is not None:
            return call.graph_inputs[whole.itself]
        kind = RootInput if isinstance(whole, Root) else SyntheticBaseInput
        return kind(tuple(call.graph_inputs[p] for p in whole.members))

    return (*map(described, rewrite.wholes), *(call.graph_inputs[p] for p in rewrite.others))


def _counting(call: TracedCall, rewrite: SyntheticBases, replay: tuple[ReplayStep, ...]) -> tuple[ReplayStep, ...]:
    """The steps, with further version increments after the write of a storage, which bumps no counter of the inputs.
    All views of a root share its counter."""
    replayed = count_writes(replay)
    place, steps = rewrite.place_of_root, list(replay)
    for number, group in enumerate(rewrite.groups):
        written = [k for k, step in enumerate(steps) if isinstance(step, Write) and step.source == Ref("input", number)]
        for root in group.roots:
            writes = sum(call.meta.input_info[p].version_bumps for p in root.members)
            done = sum(replayed[Ref("member", p)] for p in root.members)
            done += replayed[Ref("input", place[id(root)])] if id(root) in place else 0
            if writes > done:
                step = Count(Ref("member", root.members[0]), writes - done)
                alike = [other for other in group.roots if other.counter == root.counter]
                counted = {Ref("member", p) for other in alike for p in other.members}
                counted |= {Ref("input", place[id(other)]) for other in alike if id(other) in place}
                steps.insert(min(written[-1] + 1 if written else 0, first_unseen_view(steps, counted)), step)
    return tuple(steps)


def _members_with_grad_fn(rewrite: SyntheticBases, forward: Run) -> tuple[int, ...]:
    """Members whose base or root had no `grad_fn` before, and that get one of which autograd already knows."""
    got = (
        whole
        for whole, info in zip(rewrite.wholes, forward.input_info, strict=False)
        if not isinstance(whole, StorageGroup) and info.requires_grad_after and not info.requires_grad
    )
    return tuple(p for one in got for p in one.members if p != one.itself and p in forward.members_with_grad_fn)


def _why(group: Group, member: int, names: Sequence[str]) -> str:
    kind = "the storage" if isinstance(group, StorageGroup) else "the tensor"
    base = f"their synthetic base, {kind} that they are views of"
    if len(group.members) == 1:
        return f"it is written, and the layout of its views depends on its own: the graph takes {kind} that it views"
    if len(group.apart) == len(group.members):
        return f"it does not overlap the others, but it is a view of the same tensor: the graph takes {base}"
    if member in group.apart:
        return (
            f"it is written and does not overlap another input; but {kind} that it is a view of is written as a whole"
        )
    others = " and ".join(names[p] for p in group.members if p not in group.apart)
    return f"{others} overlap and one of them is written: the graph takes {base}"


def _groups(call: TracedCall, by_storage: set[tuple[int, ...]]) -> list[Group]:
    @functools.cache
    def group_of(places: tuple[int, ...]) -> Group | None:
        return _group_of(call, places, by_storage)

    def joins(places: tuple[int, ...], others: tuple[int, ...]) -> bool:
        return _overwrites(call, group_of(places), others)

    found = []
    for positions in shared_memory.in_one_storage(call.forward):
        sets = shared_memory.connected(call.forward, positions)
        sets = [places for places in sets if any(shared_memory.written(call.meta.input_info[p]) for p in places)]
        list(map(group_of, sets))  # refuse what cannot be a group, even if it is then merged into another
        found += [group for group in map(group_of, overlap.merged(sets, joins)) if group is not None]
    return sorted(found, key=lambda group: group.members)


def _overwrites(call: TracedCall, group: Group | None, others: tuple[int, ...]) -> bool:
    """See Note [The whole base is written back]."""
    args, infos = call.forward.program.args, call.meta.input_info
    written = [args[p] for p in others if shared_memory.written(infos[p])]
    return group is not None and any(overlap.overlap(group.base, argument) for argument in written)


def _group_of(call: TracedCall, places: tuple[int, ...], by_storage: set[tuple[int, ...]]) -> Group | None:
    """The group of connected inputs, or None for a single input, even if passed twice, unless its storage matters."""
    first = _first_of_each(call)
    members = tuple(p for p in places if first.get(p, p) not in places or first.get(p, p) == p)
    same = tuple((p, first[p]) for p in places if p not in members)
    if len(members) == 1 and not shared_memory.is_placed(call.forward, members[0]):
        return None
    refuse(rules.OF_MEMBERS, Members(call, members))
    group = _group(call, members, same, members in by_storage)
    if len(members) > 1 or not isinstance(group, TensorGroup):
        return group
    fills = group.itself is None and shared_memory.fills_its_storage(group.base)
    return group if fills else _group(call, members, same, by_storage=True)


def _first_of_each(call: TracedCall) -> dict[int, int]:
    """For each graph input that repeats an earlier tensor, the position of that."""
    place = {d.index: p for p, d in enumerate(call.graph_inputs) if isinstance(d, PlainInput)}
    pairs = ((i, first) for i, first in enumerate(call.duplicate_of) if first is not None)
    return {place[i]: place[first] for i, first in pairs if i in place and first in place}


def _group(call: TracedCall, members: tuple[int, ...], same: tuple[tuple[int, int], ...], by_storage: bool) -> Group:
    args = call.forward.program.args
    tensors = tuple(args[p] for p in members)
    if not by_storage:
        group = _tensor_group(members, tensors, same)
        if group is not None and _count_together(call, group) and not _moves(call, group.itself):
            return group
    refuse(rules.OF_STORAGES, Members(call, members))
    smallest = min(tensors, key=lambda t: t.dtype.itemsize)
    length = hint(smallest.untyped_storage().nbytes()) // smallest.dtype.itemsize
    with call.fake_mode:
        base = torch.empty(length, dtype=smallest.dtype, device=smallest.device)
    roots, tied = _roots(call, members, tensors), call.forward.with_gradients
    return StorageGroup(members, tensors, base, specialised(base), same, None, roots, tied)


def _tensor_group(
    members: tuple[int, ...], tensors: tuple[Any, ...], same: tuple[tuple[int, int], ...]
) -> TensorGroup | None:
    seen = [t for t in tensors if t.requires_grad] or list(tensors)
    bases = {id(root): root for root in map(shared_memory.root, seen)}
    if len(bases) != 1:
        return None
    base = next(iter(bases.values()))
    same_dtype = len({t.dtype for t in (*tensors, base)}) == 1
    covers = all(shared_memory.root(t) is base for t in tensors) or all(overlap.within(t, base) for t in tensors)
    if base.requires_grad != seen[0].requires_grad or not same_dtype or not covers or not is_dense(base):
        return None
    if functional.is_view_with_history(base):  # after a write, autograd takes its grad_fn from its own base
        return None
    if has_no_root(base) and base.requires_grad:  # autograd takes the grad_fn of its views from its own base
        return None
    itself = next((p for p, t in zip(members, tensors, strict=True) if t is base), None)
    rooted = tuple(shared_memory.root(t) is not base for t in tensors)
    source = next(p for p, t in zip(members, tensors, strict=True) if shared_memory.root(t) is base)
    return TensorGroup(members, tensors, base, specialised(base), same, itself, source=source, rooted=rooted)


def _count_together(call: TracedCall, group: TensorGroup) -> bool:
    """Whether a write to the base bumps the version of every member. For subclasses this is assumed."""
    if is_subclass(group.base):
        return True
    return len(set().union(*map(call.counters, group.members))) == 1


def _moves(call: TracedCall, itself: int | None) -> bool:
    """Whether a metadata op changes the member that is a base or a root, and requires grad, in place: views of it could
    not be taken again as they were."""
    if itself is None or not call.forward.program.args[itself].requires_grad:
        return False
    return call.meta.input_info[itself].mutates_metadata


def _roots(call: TracedCall, members: tuple[int, ...], tensors: tuple[Any, ...]) -> tuple[Root, ...]:
    found: dict[int, tuple[Any, list[int]]] = {}
    for position, tensor in zip(members, tensors, strict=True):
        root = shared_memory.root(tensor)
        found.setdefault(id(root), (root, []))[1].append(position)
    made = []
    for root, views in found.values():
        itself = next((p for p in views if call.forward.program.args[p] is root), None)
        moves = _moves(call, itself)
        refuse(rules.OF_ROOT, Rooted(repr(str(call.graph_inputs[views[0]])), root, moves))
        descriptor = call.graph_inputs[views[0]]
        counter = call.counter_of[descriptor.index] if isinstance(descriptor, PlainInput) else -1 - views[0]
        made.append(Root(root, tuple(views), itself, moves, counter))
    return tuple(made)
