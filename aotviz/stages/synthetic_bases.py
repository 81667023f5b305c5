"""Inputs that overlap in memory, one of them mutated (SYSTEM.md C2).

A functional graph can't express that writing `a` changes `b`. So the inputs of such a group are replaced by one,
their common base, and the traced function makes them again as views of it: then the write is to the base, and all
of them see it. Inputs that merely share a storage without sharing an element are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotviz.ir.descriptors import InputDescriptor, SyntheticBaseInput
from aotviz.ir.forms import Emitter, Member, Reason, TracedCall
from aotviz.ir.metadata import InputAliasInfo, Layout, OutputAliasInfo, OutputType
from aotviz.runtime import refusals
from aotviz.torch_private import functional, pytree
from aotviz.torch_private.fakes import hint
from aotviz.torch_private.storages import is_dense, lie_in, storage_as_tensor
from aotviz.tracing import overlap
from aotviz.tracing.views import follow, layout, recipe, without


@dataclass(frozen=True)
class Group:
    """Inputs that become views of one base. Positions count the inputs before the rewrite."""

    members: tuple[int, ...]
    base: Any  # the fake base
    base_member: int | None  # the member that is the base itself
    source: int | None  # a member whose `_base` it is; None if it must be made from their storage
    layouts: tuple[Layout, ...]  # one per member
    rooted: tuple[bool, ...]  # one per member: no view of the base, though it shares its memory
    base_layout: Layout


@dataclass(frozen=True)
class SyntheticBases:
    """Graph inputs are the bases, one per group, then the inputs outside all groups."""

    groups: tuple[Group, ...]
    others: tuple[int, ...]
    count: int
    names: tuple[str, ...]
    bumps: tuple[int, ...]  # in-place writes to each input
    moved: dict[int, Layout] = field(default_factory=dict)  # members whose metadata the function changes
    root_of: dict[int, int] = field(default_factory=dict)  # output -> the rooted member that it is a view of

    def traced(self, fn: Any) -> Any:
        """`fn` on bases: makes the members as views, and marks those that come out again."""

        def with_bases(*inputs: Any) -> Any:
            whole: list[Any] = [None] * self.count
            for position, value in zip(self.others, inputs[len(self.groups) :], strict=True):
                whole[position] = value
            made: dict[int, int] = {}
            roots: dict[int, tuple[int, Any]] = {}
            for group, base in zip(self.groups, inputs, strict=False):
                for position, where, rooted in zip(group.members, group.layouts, group.rooted, strict=True):
                    if position == group.base_member:
                        whole[position] = base
                    else:
                        source = base.detach() if rooted else base
                        roots[id(source)] = (position, source)
                        whole[position] = follow(source, recipe(group.base_layout, where))
                        made[id(whole[position])] = position
            before = {p: layout(whole[p]) for p in made.values()}
            result = fn(*whole)
            self._note_moves(whole, before)
            self._refuse_new_history(whole)
            leaves, spec = pytree.tree_flatten(result)
            self._note_roots(leaves, roots)
            return pytree.tree_unflatten([Member(made[id(x)]) if id(x) in made else x for x in leaves], spec)

        return with_bases

    def _note_moves(self, whole: list[Any], before: dict[int, Layout]) -> None:
        for position, was in before.items():
            after = layout(whole[position])
            if after != was:
                self.moved[position] = after

    def _note_roots(self, leaves: list[Any], roots: dict[int, tuple[int, Any]]) -> None:
        self.root_of.clear()
        for index, leaf in enumerate(leaves):
            root = roots.get(id(leaf._base)) if isinstance(leaf, torch.Tensor) else None
            if root is not None and self._is_rooted(root[0]):
                self.root_of[index] = root[0]

    def _is_rooted(self, position: int) -> bool:
        return any(r for g in self.groups for p, r in zip(g.members, g.rooted, strict=True) if p == position)

    def _refuse_new_history(self, whole: list[Any]) -> None:
        """A member that autograd does not tie to the base gets no history through it."""
        for group in self.groups:
            for position, rooted in zip(group.members, group.rooted, strict=True):
                if (rooted or group.source is None) and whole[position].requires_grad:
                    raise NotImplementedError(
                        f"{self.names[position]!r} overlaps another input, does not require grad, and is written with "
                        "a value that does. Pass a clone of it, or write it under torch.no_grad()."
                    )

    def inputs(self, emit: Emitter, variables: list[str]) -> list[str]:
        bases: list[str] = []
        for group in self.groups:
            names = " and ".join(self.names[p] for p in group.members)
            for position in group.members:
                emit.member(position, variables[position])
            if group.base_member is not None:
                base = variables[group.base_member]
            else:
                base = emit.fresh("base")
                fact = f"{names} overlap and are written through one base"
                if group.source is None:
                    whole = emit.bind("storage_as_tensor", storage_as_tensor)
                    emit.line(f"{base} = {whole}({variables[group.members[0]]})", fact, names)
                else:
                    emit.line(f"{base} = {variables[group.source]}._base", fact, names)
            self._check(emit, group, base, variables, names)
            bases.append(base)
        return [*bases, *(variables[p] for p in self.others)]

    def _check(self, emit: Emitter, group: Group, base: str, variables: list[str], names: str) -> None:
        """The members' places in the base are part of the graph, and are no part of what Dynamo guards."""
        where = group.base_layout
        lie, refuse = emit.bind("lie_in", lie_in), emit.bind("refuse", refusals.refuse)
        places = ", ".join(
            f"({variables[p]}, {place.offset})" for p, place in zip(group.members, group.layouts, strict=True)
        )
        message = f"{names} overlap in memory otherwise than when this was compiled. Compile again for this call."
        fact = f"{names} lie in their base as they did at compile time"
        emit.line(f"if not {lie}({base}, {where.size}, {where.stride}, {places}): {refuse}({message!r})", fact, names)

    def after(self, emit: Emitter, variables: list[str]) -> None:
        for group in self.groups:
            for position in group.members:
                name, variable = self.names[position], variables[position]
                if group.source is None and self.bumps[position]:
                    listed = ", ".join([variable] * self.bumps[position])
                    bump = emit.bind("increment_version", torch.autograd.graph.increment_version)
                    emit.line(f"{bump}(({listed},))", f"{name} was written through its storage", name)
                if position in self.moved:
                    to = self.moved[position]
                    emit.line(
                        f"{variable}.as_strided_({to.size}, {to.stride}, {to.offset})",
                        f"the call changes the shape or strides of {name}",
                        name,
                    )


def run(call: TracedCall) -> TracedCall:
    """TracedCall -> TracedCall."""
    groups = _groups(call)
    if not groups:
        return replace(call, evidence=_false_sharing(call))
    grouped = {p for group in groups for p in group.members}
    others = tuple(p for p in range(len(call.graph_inputs)) if p not in grouped)
    names = tuple(map(str, call.graph_inputs))
    infos = call.meta.input_info
    rewrite = SyntheticBases(tuple(groups), others, len(names), names, tuple(info.version_bumps for info in infos))
    args = call.forward.program.args
    place = {p: len(groups) + k for k, p in enumerate(others)}
    forward = call.forward.rerun(
        fn=rewrite.traced(call.forward.program.fn),
        args=[*(group.base for group in groups), *(args[p] for p in others)],
        fresh=frozenset(place[p] for p in call.forward.program.fresh if p in place),
    )
    _refuse_symbolic_moves(rewrite)
    descriptors: list[InputDescriptor] = [
        call.graph_inputs[group.base_member]
        if group.base_member is not None
        else SyntheticBaseInput(tuple(call.graph_inputs[p] for p in group.members))
        for group in groups
    ]
    traced = call.retraced(
        forward,
        graph_inputs=(*descriptors, *(call.graph_inputs[p] for p in others)),
        static_inputs=tuple(place[i] for i in call.meta.static_input_indices if i in place),
        rewrite=rewrite,
        evidence=tuple(Reason(names[p], _why(group, names)) for group in groups for p in group.members),
    )
    outputs = tuple(_by_member(i, info, rewrite) for i, info in enumerate(traced.meta.output_info))
    inputs = tuple(_without_moves(i, info, rewrite) for i, info in enumerate(traced.meta.input_info))
    return replace(traced, meta=replace(traced.meta, output_info=outputs, input_info=inputs))


def _by_member(index: int, info: OutputAliasInfo, rewrite: SyntheticBases) -> OutputAliasInfo:
    """Outputs are made from the caller's own inputs, not from the base: an input itself, or a view of one."""
    if isinstance(info.constant, Member):
        return replace(info, output_type=OutputType.is_input, raw_type=torch.Tensor, is_constant=False)
    if info.output_type is not OutputType.alias_of_input or info.base_index is None:
        return info
    if info.base_index >= len(rewrite.groups):
        return info
    group = rewrite.groups[info.base_index]
    steps = info.view_chain or ()
    through_detach = bool(steps) and str(steps[0]).startswith("detach")
    own = steps[1:] if through_detach else steps
    ways = [(p, recipe(group.base_layout, where)) for p, where in zip(group.members, group.layouts, strict=True)]
    for position, way in sorted(ways, key=lambda one: -len(one[1])):  # one member may be on the way to another
        rooted = group.rooted[group.members.index(position)]
        rest = without(own, way)
        if rest is None or rooted != through_detach or position in rewrite.moved or position == group.base_member:
            continue
        if rewrite.root_of.get(index, position) == position:
            return replace(info, constant=Member(position, rooted), view_chain=rest)
    if index in rewrite.root_of and info.layout is not None and info.layout.concrete:
        return replace(info, constant=Member(rewrite.root_of[index], True), view_chain=None)
    if group.base_member is None and info.layout is not None and info.layout.concrete:
        return replace(info, constant=Member(group.members[0]), view_chain=None)
    return info


def _without_moves(index: int, info: InputAliasInfo, rewrite: SyntheticBases) -> InputAliasInfo:
    """A member's metadata is changed behind the write to its base, and counts there."""
    if index >= len(rewrite.groups):
        return info
    moved = sum(position in rewrite.moved for position in rewrite.groups[index].members)
    return replace(info, version_bumps=max(info.version_bumps - moved, 0))


def _why(group: Group, names: Sequence[str]) -> str:
    others = ", ".join(names[p] for p in group.members)
    kind = "their storage" if group.source is None else "the tensor they are views of"
    return f"{others} share elements and one of them is written: all become views of {kind}"


def _groups(call: TracedCall) -> list[Group]:
    args, infos = call.forward.program.args, call.meta.input_info
    found = []
    for positions in _sharing_a_storage(call):
        for group in overlap.groups([args[p] for p in positions]):
            members = tuple(positions[k] for k in group)
            if len(members) > 1 and any(infos[p].mutates_data for p in members):
                found.append(_group(call, members))
    return sorted(found, key=lambda group: group.members)


def _group(call: TracedCall, members: tuple[int, ...]) -> Group:
    args = call.forward.program.args
    tensors = [args[p] for p in members]
    layouts = tuple(_specialised(layout(tensor)) for tensor in tensors)
    names = ", ".join(str(call.graph_inputs[p]) for p in members)
    if any(call.meta.input_info[p].mutates_storage_metadata for p in members):
        raise NotImplementedError(f"{names} overlap in memory, and one of them is given another storage by set_")
    seen = [t for t in tensors if t.requires_grad] or tensors
    bases = {id(root): root for root in map(_root, seen)}
    if len(bases) == 1:
        base = next(iter(bases.values()))
        same_dtype = len({t.dtype for t in (*tensors, base)}) == 1
        covers = all(_root(t) is base for t in tensors) or all(overlap.within(t, base) for t in tensors)
        if base.requires_grad == seen[0].requires_grad and same_dtype and covers and is_dense(base):
            itself = next((p for p, t in zip(members, tensors, strict=True) if t is base), None)
            rooted = tuple(_root(t) is not base for t in tensors)
            source = next(p for p, t in zip(members, tensors, strict=True) if _root(t) is base)
            return Group(members, base, itself, source, layouts, rooted, _specialised(layout(base)))
    if any(t.requires_grad for t in tensors) or len({t.dtype for t in tensors}) > 1:
        raise NotImplementedError(
            f"{names} overlap in memory and one of them is mutated, but they have no common base that aotviz could "
            "mutate in their stead (they differ in dtype, or some require grad and come from different tensors). "
            "Pass a clone of one of them."
        )
    first = tensors[0]
    length = hint(first.untyped_storage().nbytes()) // first.dtype.itemsize
    with call.fake_mode:
        base = torch.empty(length, dtype=first.dtype, device=first.device)
    rooted = tuple(t._base is None for t in tensors)
    return Group(members, base, None, None, layouts, rooted, layout(base))


def _root(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


def _specialised(where: Layout) -> Layout:
    """The layout as plain numbers: how tensors overlap is known for these sizes only.

    A symbolic size that is asked for its value leaves a guard behind.
    """
    return Layout(tuple(map(int, where.size)), tuple(map(int, where.stride)), int(where.offset))


def _refuse_symbolic_moves(rewrite: SyntheticBases) -> None:
    for position, where in rewrite.moved.items():
        if not where.concrete:
            raise NotImplementedError(f"{rewrite.names[position]} overlaps another input and gets a symbolic shape")


def _false_sharing(call: TracedCall) -> tuple[Reason, ...]:
    """Say of inputs over one storage that they were looked at and found disjoint."""
    why = "they share a storage but no element, so each is an input of its own"
    names = (", ".join(str(call.graph_inputs[p]) for p in group) for group in _sharing_a_storage(call))
    return tuple(Reason(name, why) for name in names)


def _sharing_a_storage(call: TracedCall) -> list[list[int]]:
    """Positions of inputs over one storage, where one of them is written."""
    by_storage: dict[Any, list[int]] = defaultdict(list)
    for position, value in enumerate(call.forward.program.args):
        if isinstance(value, torch.Tensor):
            by_storage[functional.storage(value)].append(position)
    infos = call.meta.input_info
    return [ps for ps in by_storage.values() if len(ps) > 1 and any(infos[p].mutates_data for p in ps)]
