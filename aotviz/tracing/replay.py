"""From the ledger of a run to the statements that the wrapper repeats (docs/design/system.md A2, E2).

Little has to be repeated: the views that leave the function, the views they were taken from, and in-place metadata ops
on these or on inputs. The writes to an input become one write of its final data, at the place of the last write.
Tensors that the graph returns are in their final state. So a view that was taken before its source was moved is made by
`as_strided`, as autograd itself would do.

Note [Unseen moves after a write]
A write gives a tensor a `grad_fn`, and hooks on it receive gradients in the shape of that moment. If a metadata op
under no_grad then adds or removes a dimension of size one, the write must happen in the earlier shape, before that op.
All other metadata ops come before the write.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.ir.view_and_mutation import (
    Count,
    Data,
    Hook,
    Layout,
    Leave,
    Look,
    Mark,
    Marking,
    Move,
    Ref,
    ReplayStep,
    View,
    Write,
    count_writes,
)
from aotviz.torch_private import operators
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional
from aotviz.tracing.events import Hooked, Log, Marked, MetadataOp, Path, TensorNumber, Viewed, Wrote
from aotviz.tracing.views import layout, plain

_Arguments = tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]  # of an operator: by position, by name


@dataclass
class Wanted:
    """What the wrapper needs variables for, and the variables that it starts with. Tensors are numbers."""

    named: Mapping[TensorNumber, Ref]  # the caller's own variables: of inputs, and members of a synthetic base
    slots: Mapping[TensorNumber, Ref]  # the results of the graph
    views: Sequence[TensorNumber]  # what the wrapper must recreate
    histories: Mapping[TensorNumber, Ref]  # of a view with a grad_fn of its own, the result of the graph that has it
    moved: Collection[TensorNumber]  # named tensors whose layout changes
    marked: Collection[TensorNumber]  # inputs that stop requiring grad, and views that start to
    written: Mapping[TensorNumber, Ref]  # of a named tensor or detached alias, the result that holds its new data
    left: Set[TensorNumber] = frozenset()  # tensors that leave data in the storage that they had


class States:
    """The functional tensors of a run as they are at its end, by number. They are read inside the open trace."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors

    def requires_grad(self, tensor: TensorNumber) -> bool:
        return bool(self._tensors[tensor].requires_grad)

    def is_view(self, tensor: TensorNumber) -> bool:
        """Whether autograd knows it as one."""
        return base_of(self._tensors[tensor]) is not None

    def stale(self, tensor: TensorNumber) -> bool:
        """Whether it is a view whose use autograd refuses."""
        value = self._tensors[tensor]
        return functional.is_functional(value) and functional.is_stale(value)

    def data_mutated(self, tensor: TensorNumber) -> bool:
        return functional.data_mutated(self._tensors[tensor])

    def version(self, tensor: TensorNumber) -> int:
        return operators.version(self._tensors[tensor])

    def shares_counter(self, alias: TensorNumber, tensor: TensorNumber) -> bool:
        """Whether a write to `alias` bumps the version counter of `tensor`."""
        return functional.shares_counter(self._tensors[alias], self._tensors[tensor])

    def layout(self, tensor: TensorNumber) -> Layout:
        return layout(self._tensors[tensor])

    def kind(self, tensor: TensorNumber) -> tuple[Any, ...]:
        """How it reads its memory: dtype, conjugation, negation."""
        value = self._tensors[tensor]
        return value.dtype, value.is_conj(), value.is_neg()


def replayable(path: Path) -> bool:
    """Whether all statements of a path can be written down before the call: they have no symbolic sizes as
    arguments."""
    return all(written_down(event) or event.layouts[k].concrete for event, k in path)


def first_unseen_view(steps: Sequence[ReplayStep], tensors: Iterable[Ref]) -> int:
    """The position of the step that takes the first view of `tensors` under no_grad. Eager wrote the viewed tensor
    before that: autograd refuses such a view if the version has changed by its next use."""
    known = set(tensors)
    for k, step in enumerate(steps):
        if isinstance(step, View | Data) and step.source in known:
            if not step.grad_mode:
                return k
            known.update(step.made)
    return len(steps)


class Builder:
    def __init__(self, log: Log, states: States, wanted: Wanted) -> None:
        self.log, self.states, self.wanted = log, states, wanted
        self.refs: dict[TensorNumber, Ref] = {**wanted.slots, **wanted.named}
        self.steps: list[ReplayStep] = []
        self.needed: set[TensorNumber] = set()
        self.variables = (Ref("view", number) for number in itertools.count(1))  # unused ones
        self.apart: list[TensorNumber] = []  # tensors with a version counter of their own
        self.last_move: dict[TensorNumber, int] = {}
        self.rigid: set[TensorNumber] = set()  # moved by an op with symbolic arguments
        self.shapes: dict[TensorNumber, tuple[int, ...]] = {}  # see Note [Unseen moves after a write]
        for position, event in log.changes():
            if isinstance(event, MetadataOp):
                self.last_move[event.tensor] = position
                if not written_down(event):
                    self.rigid.add(event.tensor)
        # A tensor that is given another storage gets its final layout at the same time.
        self.replaced = {tensor: k for k, tensor in log.replacements() if tensor in wanted.written}
        self.rigid.update(self.replaced)

    def build(self) -> tuple[tuple[ReplayStep, ...], dict[TensorNumber, Ref]]:
        """The steps, and the variable of each tensor that has one afterwards."""
        for tensor in (*self.wanted.views, *self._moved_with_history()):
            _, path = self.log.path(tensor, lambda one: one in self.refs or one in self.needed)
            self.needed.update(event.results[k] for event, k in path)
        replayed = self._moves_to_replay()
        writes = self._write_positions()
        counted = self._other_writes(replayed)
        self._write_at(writes, -1)
        for position, event in enumerate(self.log.events):
            if isinstance(event, Viewed) and self._recreates(event):
                self._view(position, event)
            elif isinstance(event, MetadataOp) and event.tensor in replayed:
                self._move(position, event)
            elif isinstance(event, Marked) and event.tensor in self.wanted.marked:
                how = Marking.DETACHED if event.method == "detach_" else Marking.ON if event.on else Marking.OFF
                self.steps.append(Mark(self.refs[event.tensor], how))
            elif isinstance(event, Hooked):
                self._hook(event)
            if position in counted:
                self.steps.append(Count(counted[position], 1))
            self._write_at(writes, position)
        self._count_writes()
        self._look()
        return tuple(self.steps), self.refs

    def _count_writes(self) -> None:
        """Bump version counters that eager bumped more often than the replay does."""
        replayed = count_writes(self.steps)
        for tensor in self.apart:
            ref = self.refs[tensor]
            missing = self.states.version(tensor) - replayed[ref]
            if missing > 0:
                self.steps.append(Count(ref, missing))

    def _look(self) -> None:
        """Read the `grad_fn` of views that the function wrote, or used after the write of their base. The replay
        recreates them before that write, and autograd regenerates `grad_fn` only when it is read."""
        if not any(isinstance(step, Write) for step in self.steps):
            return
        grown: set[TensorNumber] = set()  # a write gave them a grad_fn
        knows: set[TensorNumber] = set()  # views whose grad_fn eager has regenerated
        for event in self.log.events:
            if isinstance(event, Wrote) and event.mode.grad and self.states.requires_grad(event.tensor):
                grown.add(self.log.root(event.tensor))
                knows.add(event.tensor)
            elif isinstance(event, Viewed) and self.log.root(event.source) in grown:
                knows.update((event.source, *event.results))
        for tensor in self.wanted.views:
            if tensor in knows and self.states.requires_grad(tensor) and self.refs[tensor].kind == "view":
                self.steps.append(Look(self.refs[tensor]))

    def _recreates(self, event: Viewed) -> bool:
        return not self.needed.isdisjoint(event.results)

    def _moved_with_history(self) -> list[TensorNumber]:
        """Views of inputs that were moved in grad mode: autograd then gives the input another `grad_fn`."""
        moved = (event.tensor for event in self.log.metadata_ops() if event.mode.grad)
        inside = (one for one in moved if one not in self.refs and self.log.root(one) in self.refs)
        return [one for one in inside if self.states.is_view(one) and self.states.requires_grad(one)]

    def _moves_to_replay(self) -> set[TensorNumber]:
        sources = {view.source for view in self.log.views() if self._recreates(view)}
        named = {i for i in self.wanted.named if i in self.last_move and (i in self.wanted.moved or i in sources)}
        return (self.needed | named) - self.rigid

    def _other_writes(self, replayed: Set[TensorNumber]) -> dict[int, Ref]:
        """Events, by position, after which the wrapper bumps the version counter of what they write:

        - Writes to a result of the graph of which the wrapper takes a view that they make stale. The graph returns the
          written tensor; a bump after the view was taken makes it stale again, and autograd refuses the same uses as
          in eager.
        - Those that leave an input's data unchanged, after a view of another input that must be recreated. The two may
          share a version counter, and that view would lose its `grad_fn`; see views_of_no_grad_bases.py.
        """
        stale = {self.log.root(view) for view in self.wanted.views if self.states.stale(view)}
        viewed, tracked, found = set[TensorNumber](), set[TensorNumber](), dict[int, Ref]()
        for position, event in enumerate(self.log.events):
            if isinstance(event, Viewed) and self._recreates(event):
                root = self.log.root(event.source)
                viewed.add(root)
                if any(result in self.needed and self.states.requires_grad(result) for result in event.results):
                    tracked.add(root)
            elif viewed and isinstance(event, MetadataOp | Wrote) and event.counts:
                root = self.log.root(event.tensor)
                ref = self.refs.get(root, Ref("", 0))
                counted = root in viewed & stale
                if ref.kind == "input":
                    repeated = root in replayed or (isinstance(event, MetadataOp) and event.tensor in replayed)
                    changed = root in self.wanted.written or self.states.data_mutated(root)
                    counted = not ref.path and bool(tracked - {root}) and not (repeated or changed)
                if counted and ref.kind in ("input", "output", "base"):
                    found.update({position: ref} if self.states.shares_counter(event.tensor, root) else {})
        return found

    def _write_positions(self) -> dict[int, list[tuple[TensorNumber, Ref]]]:
        """Map the event after which each write happens to (the written tensor, result of the graph with the data).

        A write through `.data`, or to a part of a subclass, bumps no shared version counter, so views taken before it
        are not affected.
        """
        last = dict.fromkeys(self.wanted.written, -1)
        seen = dict(last)  # the last write, or metadata op after it, in grad mode
        for position, event in enumerate(self.log.events):
            if isinstance(event, Wrote) and event not in self.log.events_below:
                root, path = self.log.path(event.tensor)
                base, _ = self.log.path(event.tensor, lambda one: not self.states.is_view(one))  # to autograd
                unseen = any(self.log.counts_apart(step.results[k]) for step, k in path)
                for key in {base, *([] if unseen else [root])} & set(last):
                    last[key] = position
                    seen[key] = position if event.mode.grad and self.states.requires_grad(event.tensor) else seen[key]
            elif isinstance(event, MetadataOp) and event.mode.grad and seen.get(event.tensor, -1) >= 0:
                seen[event.tensor] = position
        for key in last:
            if self._moves_unseen(key, seen[key]):
                last[key] = seen[key]
            else:
                last[key] = max(last[key], self.last_move.get(key, -1))
        last.update(self.replaced)
        positions: dict[int, list[tuple[TensorNumber, Ref]]] = {}
        for key, value in self.wanted.written.items():
            positions.setdefault(last[key], []).append((key, value))
        return positions

    def _moves_unseen(self, key: TensorNumber, write: int) -> bool:
        """See Note [Unseen moves after a write]. `write` is the position of the last event in grad mode."""
        if write < 0 or self.last_move.get(key, -1) <= write or not self.states.requires_grad(key):
            return False
        wrote = self.log.events[write]
        if not isinstance(wrote, Wrote | MetadataOp) or wrote.where is None or self.log.root(wrote.tensor) != key:
            return False
        then, now = wrote.where, self.states.layout(key)
        if not (then.concrete and now.concrete) or then.size == now.size or then.order != now.order:
            return False
        self.shapes[key] = then.size
        return True

    def _write_at(self, writes: Mapping[int, list[tuple[TensorNumber, Ref]]], position: int) -> None:
        for key, value in writes.get(position, ()):
            if key in self.wanted.left:
                self.steps.append(Leave(self.refs[key]))
            self.steps.append(Write(self.refs[key], value, self.shapes.get(key)))

    def _view(self, position: int, event: Viewed) -> None:
        source = self.refs[event.source]
        too_late = source.kind in ("output", "base") or event.source in self.rigid
        moved = self.last_move.get(event.source, -1) > position and too_late
        if moved:
            # `as_strided` cannot take a view of another dtype, whose gradients it would place by the layout of the
            # moved tensor, or one of symbolic size.
            alike = all(self.states.kind(one) == self.states.kind(event.source) for one in event.results)
            quiet = written_down(event) and not any(map(self.states.requires_grad, event.results))
            if not (all(where.concrete for where in event.layouts) if alike else quiet):
                *_, last = self.log.metadata_ops(event.source)
                raise refused(last, "a tensor")
            if not alike:
                before = next(self.variables)
                self._as_strided(event, source, before, event.source_layout)
                source, moved = before, False
        if written_down(event) and not moved:
            targets = tuple(self._fresh(result) for result in event.results)
            value = self.wanted.histories.get(event.results[0]) if len(targets) == 1 else None
            mode = event.mode
            if event.detaches and not self._counts_with_source(event):
                self.apart.append(event.results[0])
                self.steps.append(Data(source, targets[0], mode.grad, mode.inference, value))
                return
            apart = [k for k, result in enumerate(event.results) if result in self.log.below]
            taken = tuple(next(self.variables) if k in apart else one for k, one in enumerate(targets))
            arguments, seen = (event.args, tuple(event.kwargs.items())), None if apart else value
            self._take(event, source, event.operator, arguments, taken, event.several, seen)
            self.apart += (event.results[k] for k in apart)
            self.steps += (Data(taken[k], targets[k], mode.grad, mode.inference, value) for k in apart)
            return
        for result, where in zip(event.results, event.layouts, strict=True):
            if result in self.needed:
                self._strided(event, source, result, where)

    def _counts_with_source(self, event: Viewed) -> bool:
        """Whether it was `.detach()` and not `.data`, which has its own version counter."""
        alias = event.results[0]
        _, path = self.log.path(alias)
        shared = (self.states.shares_counter(alias, step.source) for step, _ in reversed(path))
        return not self.log.counts_apart(alias) and any(shared)

    def _strided(self, event: Viewed, source: Ref, result: TensorNumber, where: Layout) -> None:
        if self.states.is_view(result) and not event.several:
            self._as_strided(event, source, self._fresh(result), where)
            return
        view, target = next(self.variables), self._fresh(result)
        if self.states.is_view(result):  # one of several views: autograd refuses more of them than of one view
            row = replace(where, size=(1, *where.size), stride=(1, *where.stride))
            self._as_strided(event, source, view, row)
            self._take(event, view, torch.ops.aten.unbind.int, ((0,), ()), (target,), several=True)
            return
        self._as_strided(event, source, view, where)
        self._take(event, view, torch.ops.aten.detach.default, ((), ()), (target,))  # so that it is not a view

    def _as_strided(self, event: Viewed, source: Ref, target: Ref, where: Layout) -> None:
        arguments = (where.size, where.stride, where.offset)
        self._take(event, source, torch.ops.aten.as_strided.default, (arguments, ()), (target,))

    def _take(
        self, event: Viewed, source: Ref, operator: Any, arguments: _Arguments, targets: tuple[Ref, ...],
        several: bool = False, value: Ref | None = None,
    ) -> None:  # fmt: skip
        grad, inference = event.mode.grad, event.mode.inference
        self.steps.append(View(source, operator, *arguments, grad, inference, targets, several, value))

    def _fresh(self, tensor: TensorNumber) -> Ref:
        known = self.refs.get(tensor)
        if known is None:
            known = self.refs[tensor] = next(self.variables)
        return known

    def _move(self, position: int, event: MetadataOp) -> None:
        source, mode = self.refs[event.tensor], event.mode
        # The wrapper calls requires_grad_() before the graph, on this tensor or on one that this is a view of.
        later = self.log.events[position + 1 :]
        grad = mode.grad and (event.tracked or not any(isinstance(e, Marked) and e.on for e in later))
        kwargs = tuple(event.kwargs.items())
        self.steps.append(Move(source, event.operator, event.args, kwargs, grad, mode.inference, event.counts))

    def _hook(self, event: Hooked) -> None:
        if not all(tensor in self.refs for tensor in event.tensors):
            raise Refused("hook on an alias", "an output")
        source, *others = (self.refs[tensor] for tensor in event.tensors)
        self.steps.append(Hook(source, tuple(others), event.method, event.arguments))


def written_down(event: Viewed | MetadataOp) -> bool:
    return all(map(plain, event.args)) and all(map(plain, event.kwargs.values()))


def named(moved: MetadataOp, whose: str) -> tuple[str, str, str]:
    """What the rule "metadata op on a view" says of an op on what `whose` names."""
    name = str(moved.operator.overloadpacket.__name__)
    return whose, name, f"{name.removesuffix('_')}()"


def refused(moved: MetadataOp, whose: str) -> Refused:
    return Refused("metadata op on a view", *named(moved, whose))
