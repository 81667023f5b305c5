"""Inputs that overlap in memory, one of them mutated (SYSTEM.md C2).

A functional graph can't express that writing `a` changes `b`. So the inputs of such a group are replaced by one,
their common base, and the traced function makes them again as views of it: then the write is to the base, and all
of them see it. Inputs that merely share a storage without sharing an element are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotviz.ir.descriptors import InputDescriptor, SyntheticBaseInput
from aotviz.ir.forms import Emitter, Reason, TracedCall
from aotviz.ir.metadata import InputAliasInfo, Layout, Ref, ViewAndMutationMeta
from aotviz.ir.refusals import Refused
from aotviz.runtime import refusals
from aotviz.torch_private import functional
from aotviz.torch_private.fakes import hint
from aotviz.torch_private.storages import is_dense, lie_in, storage_as_tensor
from aotviz.torch_private.subclasses import is_subclass, parts, paths
from aotviz.tracing import overlap
from aotviz.tracing.forward import WithMembers
from aotviz.tracing.views import follow, layout, recipe


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
    bumps: tuple[int, ...]  # in-place writes to each input, but for those that the wrapper repeats on it

    def traced(self, fn: Any) -> Any:
        """`fn` on bases: makes the members as views, and says which they are."""

        def with_bases(*inputs: Any) -> WithMembers:
            whole: list[Any] = [None] * self.count
            for position, value in zip(self.others, inputs[len(self.groups) :], strict=True):
                whole[position] = value
            members: dict[int, Any] = {}
            shared: dict[int, int] = {}
            for number, (group, base) in enumerate(zip(self.groups, inputs, strict=False)):
                for position, where, rooted in zip(group.members, group.layouts, group.rooted, strict=True):
                    if position == group.base_member:
                        whole[position] = base
                        continue
                    source = base.detach() if rooted else base
                    with torch.enable_grad():
                        members[position] = whole[position] = follow(source, recipe(group.base_layout, where))
                    if group.source is not None:
                        shared[position] = number
            result = fn(*whole)
            self._refuse_new_history(whole)
            return WithMembers(result, members, shared)

        return with_bases

    def _refuse_new_history(self, whole: list[Any]) -> None:
        """A member that autograd does not tie to the base gets no history through it."""
        for group in self.groups:
            for position, rooted in zip(group.members, group.rooted, strict=True):
                if (rooted or group.source is None) and whole[position].requires_grad:
                    raise Refused("alias gains a history", repr(self.names[position]))

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

    def after(self, emit: Emitter, variables: list[str], rewritten: list[str]) -> None:
        for group in self.groups:
            for position in group.members:
                name, variable = self.names[position], variables[position]
                if group.source is None and self.bumps[position] > 0:
                    listed = ", ".join([variable] * self.bumps[position])
                    bump = emit.bind("increment_version", torch.autograd.graph.increment_version)
                    emit.line(f"{bump}(({listed},))", f"{name} was written through its storage", name)


def run(call: TracedCall) -> TracedCall:
    """TracedCall -> TracedCall."""
    _refuse_shared_parts(call)
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
    replayed = ViewAndMutationMeta.count_writes(forward.output_facts.replay)
    rewrite = replace(rewrite, bumps=tuple(b - replayed[Ref("member", p)] for p, b in enumerate(rewrite.bumps)))
    descriptors: list[InputDescriptor] = [
        call.graph_inputs[group.base_member]
        if group.base_member is not None
        else SyntheticBaseInput(tuple(call.graph_inputs[p] for p in group.members))
        for group in groups
    ]
    return call.retraced(
        forward,
        graph_inputs=(*descriptors, *(call.graph_inputs[p] for p in others)),
        static_inputs=tuple(place[i] for i in call.meta.static_input_indices if i in place),
        rewrite=rewrite,
        evidence=tuple(Reason(names[p], _why(group, names)) for group in groups for p in group.members),
    )


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
            if len(members) > 1 and any(_written(infos[p]) for p in members):
                found.append(_group(call, members))
    return sorted(found, key=lambda group: group.members)


def _group(call: TracedCall, members: tuple[int, ...]) -> Group:
    args = call.forward.program.args
    tensors = [args[p] for p in members]
    layouts = tuple(_specialised(layout(tensor)) for tensor in tensors)
    names = ", ".join(str(call.graph_inputs[p]) for p in members)
    if any(call.meta.input_info[p].mutates_storage_metadata for p in members):
        raise Refused("alias is given another storage", names)
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
        raise Refused("aliases without a common base", names)
    if any(map(is_subclass, tensors)):
        raise Refused("subclasses without a common base", names)
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


def _false_sharing(call: TracedCall) -> tuple[Reason, ...]:
    """Say of inputs over one storage that they were looked at and found disjoint."""
    why = "they share a storage but no element, so each is an input of its own"
    names = (", ".join(str(call.graph_inputs[p]) for p in group) for group in _sharing_a_storage(call))
    return tuple(Reason(name, why) for name in names)


def _refuse_shared_parts(call: TracedCall) -> None:
    """Raise where a write to one input changes a part of another, which is a tensor made of tensors.

    Views of one such tensor share what stands for its storage, and become views of it again.
    """
    args, infos = call.forward.program.args, call.meta.input_info
    if not any(map(is_subclass, args)):
        return
    seen: list[tuple[int, str, torch.Tensor]] = []
    for position, value in enumerate(args):
        if not isinstance(value, torch.Tensor):
            continue
        for path, part in zip(paths(value), parts(value), strict=True):
            name = ".".join((str(call.graph_inputs[position]), *path))
            for other, other_name, known in seen:
                written = infos[position].mutates_data or infos[other].mutates_data
                apart = functional.storage(value) != functional.storage(args[other])
                inner = is_subclass(value) or is_subclass(args[other])
                if not (written and apart and inner) or functional.storage(part) != functional.storage(known):
                    continue
                if other != position and overlap.overlap(part, known):
                    raise NotImplementedError(
                        f"{other_name} and {name} overlap in memory inside a tensor subclass, and one of them is "
                        "written: aotviz can't follow that. Pass a clone of one of them."
                    )
            seen.append((position, name, part))


def _written(info: InputAliasInfo) -> bool:
    """Whether what others see of its memory may change: before a set_, it may have been written."""
    return info.mutates_data or info.mutates_storage_metadata


def _sharing_a_storage(call: TracedCall) -> list[list[int]]:
    """Positions of inputs over one storage, where one of them is written."""
    by_storage: dict[Any, list[int]] = defaultdict(list)
    for position, value in enumerate(call.forward.program.args):
        if isinstance(value, torch.Tensor):
            by_storage[functional.storage(value)].append(position)
    infos = call.meta.input_info
    return [ps for ps in by_storage.values() if len(ps) > 1 and any(_written(infos[p]) for p in ps)]
