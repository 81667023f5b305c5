"""A record of what a program does with aliases: views, in-place metadata ops, and writes, statement by statement.

A functional graph shows the values of views, but not the tensors that the user holds: after a write, functionalization
recomputes each view from the written base, in whatever mode is then on. So the ledger sees each operator before it is
functionalized, gives each tensor object a number, and records as events (`events.py`) which came from which. From these
the wrapper repeats the user's statements on real tensors, in the user's order (`replay.py`), with the `grad_fn`, base
and modes of eager.

Note [Views changed in place]
When a view is transposed in place, autograd gives its base a new `grad_fn`, which expects the gradient of the viewed
part in the new layout. On real tensors autograd finds that part by its strides. In a trace it repeats the operators
that made the view, and these do not include the transposition. So if the view, or a view of it, is written afterwards,
or used after something that shares its memory was written, the gradients of the trace differ from eager's, or have a
shape that does not fit. A metadata op that autograd does not see is itself such a write.

Note [Hidden aliases]
Some results share memory with an argument although the operator's schema says that they are new: `unsafe_chunk` and
`unsafe_split` return parts of a tensor that autograd does not know as views. In eager, a write to the tensor shows in
the parts, and the other way round. A graph has values, not memory, and would show the old ones. So the use of a tensor
after such a write under another name is refused. Without a use, as in torch's LSTM, which writes to the parts of a
tensor that it then drops, nothing is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.refusals import Refused
from aotviz.ir.symbolic_sizes import hint
from aotviz.ir.view_and_mutation import Layout
from aotviz.ir.wrapper_subclasses import is_subclass, parts
from aotviz.torch_private import dispatch, operators, pytree
from aotviz.torch_private.tensors import base_of, storage_key
from aotviz.tracing import functional, overlap
from aotviz.tracing.argument_state import ArgumentState, Kind
from aotviz.tracing.events import (
    Event,
    Log,
    MetadataOp,
    Mode,
    Path,
    ResizedStorage,
    TensorNumber,
    TracedHook,
    Viewed,
    Wrote,
)
from aotviz.tracing.fakes import geometry
from aotviz.tracing.views import contiguous, layout, strides_in

_aten = torch.ops.aten
_HIDING = {_aten.unsafe_split.Tensor, _aten.unsafe_split_with_sizes.default, _aten.unsafe_chunk.default}


@dataclass(frozen=True)
class Left:
    """The data left in a storage when the tensor that owns it is given another one."""

    value: Any  # not a functional tensor, but the fake that the graph computed
    layout: Layout


class GradFn(Enum):
    """The state of the `grad_fn` of a moved view, or of a view of one, where no version number expresses it."""

    STALE = "autograd must regenerate it"
    WRONG = "it differs from eager's"


class Ledger(Log):
    """The events of one run, and the functional tensors, by number, that the user's code held."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []  # by number
        self._numbers: dict[int, TensorNumber] = {}  # id of a tensor -> its number
        self.open = False
        self.meets_subclass = False  # an operator was called with one
        self.differentiated: set[int] = set()  # arguments whose gradient the function asks for, by position
        self.placed: set[TensorNumber] = set()  # tensors with an `as_strided` in the chain of views that led to them
        self.storages: dict[TensorNumber, int] = {}  # argument -> the key of its storage
        self.sizes_before: dict[TensorNumber, Any] = {}  # argument -> the bytes of its storage
        self.of_subclasses: set[TensorNumber] = set()  # arguments that are subclasses, and their parts
        self.resized_storages: list[ResizedStorage] = []
        self.read_sizes: dict[TensorNumber, int] = {}  # tensor -> the bytes of its storage that the function read
        self._resized: set[TensorNumber] = set()  # views with gaps that now cover other elements, after `resize_`
        self._moved_views: list[MetadataOp] = []  # in grad mode
        self._after_move: dict[TensorNumber, int | GradFn] = {}  # one, or a view of it -> version of its right grad_fn
        self._wholes: defaultdict[int, list[Any]] = defaultdict(list)  # id of a hidden alias -> what it is a part of
        self._parts: defaultdict[int, list[Any]] = defaultdict(list)  # id of a whole -> its parts, and theirs
        self._outdated: dict[int, str] = {}  # id of an owner whose memory was written elsewhere -> the operator
        self.given: dict[TensorNumber, ArgumentState] = {}  # by argument, if it requires grad
        self._orphans: set[TensorNumber] = set()  # arguments of Kind.ORPHAN
        self.traced_hooks: list[TracedHook] = []
        self.unrepeatable: MetadataOp | None = None  # see Note [Views changed in place]
        self.assigned: list[TensorNumber] = []  # tensors whose `.data` was assigned
        self.left: dict[TensorNumber, Left | None] = {}  # tensor -> the data left in its first storage, if written
        self.parted: list[tuple[int, TensorNumber, str]] = []  # (event, what it gave another storage, refusal)

    def remove(self, event: Event) -> int:
        """As in a log; what refers to a position among the events moves up with them."""
        removed = super().remove(event)
        self.traced_hooks = [
            replace(hook, position=hook.position - (hook.position > removed)) for hook in self.traced_hooks
        ]
        self.parted = [(at - (at > removed), tensor, reason) for at, tensor, reason in self.parted]
        return removed

    def number(self, value: Any) -> TensorNumber:
        """The number of a tensor; one below 0 if no event is about it."""
        known = self._numbers.get(id(value))
        return TensorNumber(~id(value)) if known is None else known

    def numbered(self, tensor: torch.Tensor) -> TensorNumber:
        """The number of a tensor, which is kept from now on."""
        known = self._numbers.get(id(tensor))
        if known is None:
            known = self._numbers[id(tensor)] = TensorNumber(len(self.tensors))
            self.tensors.append(tensor)
        return known

    def _as_data(self, value: Any) -> Any:
        """An argument with numbers in place of tensors, and tuples in place of lists."""
        if isinstance(value, (list, tuple)):
            return tuple(map(self._as_data, value))
        return self.numbered(value) if isinstance(value, torch.Tensor) else value

    def owner(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor that owns the memory of `tensor`."""
        number = self.number(tensor)
        return tensor if number < 0 else self.tensors[self.root(number)]

    def give(self, argument: Any, passed: Any, as_view: bool) -> None:
        """Called before the run with each argument, and the tensor that was passed for it."""
        if not functional.is_functional(argument):
            return
        number = self.numbered(argument)
        if functional.has_storage(passed):
            self.storages[number] = storage_key(passed)
            self.sizes_before[number] = passed.untyped_storage().nbytes()
        if is_subclass(argument):
            self.of_subclasses.update(map(self.numbered, (argument, *parts(argument))))
        elif passed.requires_grad:
            where = layout(argument)
            given = self.given[number] = ArgumentState(Kind.of(passed), as_view, where, overlap.hinted(where).order)
            if given.kind is Kind.ORPHAN:
                self._orphans.add(number)

    def is_itself(self, tensor: torch.Tensor, value: Any) -> bool:
        """Whether `value` is `tensor`, or a detached alias of all of it. Giving the tensor the memory of such a value
        (by `set_` or `.data`) changes nothing. `module.to(dtype)` does this with each parameter that already has the
        dtype."""
        number = self.number(tensor)
        if value is tensor or not functional.is_functional(value) or number in self.left:
            return value is tensor
        source, path = self.path(self.number(value), lambda one: one == number)
        return source == number and all(event.detaches for event, _ in path) and layout(value) == layout(tensor)

    def leave(self, tensor: torch.Tensor) -> None:
        """Called before a tensor is given another storage: others that share the old one must see what was written to
        it."""
        if self.open and self.number(tensor) not in self.left:
            number = self.numbered(tensor)
            written = any(True for _ in self.writes_to(number))
            self.left[number] = Left(functional.inner(tensor), layout(tensor)) if written else None

    def assign(self, tensor: torch.Tensor, given: bool) -> None:
        """Called after `tensor.data` was assigned, which does not bump the version counter. `given`: it is an input."""
        number = self.numbered(tensor)
        self.assigned.append(number)
        if given:
            self.add(Wrote(number, mode_now(), counts=False))
        elif base_of(tensor) is None and not self.is_viewed(number):
            self.part(number)
        else:
            self.parted.append((len(self.events) - 1, number, "data is assigned"))

    def note(
        self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, node: fx.Node | None = None
    ) -> bool:
        """Called after each operator, with its node. Returns whether the operator concerns aliases."""
        kind = operators.aliasing(operator)
        if kind == "plain" or not args:
            self._note_use(args)
            return False
        if kind == "view":
            return self._note_view(operator, args, kwargs, result, node)
        if kind == "move":
            if functional.is_functional(args[0]):
                self._note_move(operator, args, kwargs, node)
            return True
        self._note_use(args[1:])
        for tensor in operators.written(operator, args, kwargs):
            if functional.is_functional(tensor):
                self.note_write(operator, tensor, node, (*args[1:], *kwargs.values()))
                if operators.counts_unseen(operator):
                    functional.increment_version((tensor,))
        return True

    def _note_view(
        self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, node: fx.Node | None
    ) -> bool:
        first, several = args[0], isinstance(result, (list, tuple))
        made = tuple(result) if several else (result,)
        fresh = (functional.is_functional(r) and r is not first and self.origin(self.number(r)) is None for r in made)
        if not (functional.is_functional(first) and made and all(fresh)):
            return False
        layouts, source = tuple(map(layout, made)), self.numbered(first)
        results = tuple(map(self.numbered, made))
        detaches = operator is torch.ops.aten.detach.default
        if operator is torch.ops.aten.as_strided.default or source in self.placed:
            self.placed.update(results)
        good_for = self._after_move.get(source)
        if good_for is not None and not detaches:
            given = self.given.get(source) if good_for is GradFn.STALE and base_of(first) is not None else None
            # Of an argument: the order of its elements differs from that in what the trace takes it for a view of.
            stale = self._is_stale(source) if given is None else given.order != overlap.hinted(given.start).order
            if stale or good_for is not GradFn.STALE:  # autograd sets their base only later
                self._after_move.update((r, GradFn.WRONG if stale else good_for) for r in results)
        said = self._as_data(args[1:]), {name: self._as_data(value) for name, value in kwargs.items()}
        self.add(Viewed(results, layouts, source, layout(first), operator, *said, several, detaches, mode_now(), node))
        return True

    def note_write(self, operator: Any, tensor: torch.Tensor, node: fx.Node | None, others: Iterable[Any] = ()) -> None:
        """Called after an operator wrote the data of a tensor, with its other arguments."""
        mode, number = mode_now(), self.numbered(tensor)
        root, path = self.path(number)
        if self._resized.intersection((number, *(event.source for event, _ in path))):
            raise Refused("resized after a write", "a view")
        values = (value for value in (tensor, *others) if isinstance(value, torch.Tensor))
        differentiable = mode.grad and any(value.requires_grad for value in values)
        if differentiable and self._misplaces_gradients(number):
            raise Refused("as_strided in a chain of views", "a tensor")
        self.add(Wrote(number, mode, operator, node, layout(self.tensors[root]), operators.counts_writes(operator)))
        if differentiable and number in self._after_move and not self._is_repeated(number):
            self.unrepeatable = self.moved_view()

    def note_of_subclass(self, operator: Any, args: Any, kwargs: Any, result: Any, first: int) -> None:
        """The same, for an operator on a subclass, after those that its class called: the events from `first`. A view
        (`jagged.values()`) may be an alias that the class made of a part. To autograd it is a view of the whole."""
        for one in result if isinstance(result, (list, tuple)) else (result,):
            inside = self.origin(self.number(one))
            if inside is not None and operators.aliasing(operator) == "view":
                self.remove(inside)
        for event in self.events[first:]:
            self.below.update(event.results if isinstance(event, Viewed) else ())
            self.events_below.add(event)
        self.note(operator, args, kwargs, result)

    def note_hidden(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Called after each operator; see Note [Hidden aliases]."""
        if operator in _HIDING:
            whole = self.owner(args[0])
            wholes = [whole, *self._wholes[id(whole)]]
            for part in result:
                self._wholes[id(part)] = wholes
                for one in wholes:
                    self._parts[id(one)].append(part)
        elif self._parts:
            for written_by in self.outdated((*args, *kwargs.values())):
                raise Refused("part that is not a view", written_by)
            for tensor in operators.written(operator, args, kwargs) if operators.writes(operator) else ():
                owner, name = id(self.owner(tensor)), operators.name(operator).rpartition("::")[2]
                self._outdated.update((id(one), name) for one in (*self._wholes[owner], *self._parts[owner]))

    def outdated(self, used: Iterable[Any]) -> Iterator[str]:
        """The operators that wrote the memory of what is used under another name; `used` by the caller, after the run,
        too."""
        for value in pytree.tree_leaves(list(used)) if self._outdated else ():
            if isinstance(value, torch.Tensor) and id(self.owner(value)) in self._outdated:
                yield self._outdated[id(self.owner(value))]

    def resize_storage(self, tensor: torch.Tensor, size: Any, after: fx.Node) -> None:
        """Called instead of `untyped_storage().resize_`. The graph computes with values, not with the memory of an
        input, so it needs no such operator; see tracing/storage_sizes.py."""
        root = self.numbered(self.owner(tensor))
        if root in self.of_subclasses:
            raise Refused("storage is resized", "a tensor subclass")
        if root in self.left:
            raise Refused("storage is resized", "a tensor that set_ has given another storage")
        self.resized_storages.append(ResizedStorage(root, int(size), self.size_before(root), after))

    def size_before(self, root: TensorNumber) -> int:
        """The bytes of a tensor's storage before the function resizes it."""
        known = self.sizes_before.get(root)
        return hint(functional.held(self.tensors[root]).untyped_storage().nbytes() if known is None else known)

    def note_resize(self, tensor: torch.Tensor, size: Sequence[Any]) -> None:
        """Called before `resize_`. A view with gaps may then cover other elements, which the trace would not write."""
        number = self.number(tensor)
        if not self.open or self.origin(number) is None or contiguous(layout(tensor)):
            return
        where = Layout(tuple(size), strides_in(range(len(size)), size), layout(tensor).offset)
        with dispatch.without_modes():
            if not overlap.covers(layout(tensor), where):
                self._resized.add(number)

    def _note_move(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], node: fx.Node | None) -> None:
        """See Note [Views changed in place]."""
        tensor, mode, sets = args[0], mode_now(), operators.sets_storage(operator)
        number, where, tracked = self.numbered(tensor), layout(tensor), tensor.requires_grad
        if sets:
            self.parted.append((len(self.events), number, "alias is given another storage"))
        said = self._as_data(args[1:]), {name: self._as_data(value) for name, value in kwargs.items()}
        moved = MetadataOp(number, operator, *said, mode, node, where, tracked, sets, operators.counts_writes(operator))
        self.add(moved)
        given = self.given.get(number)
        if given is not None:
            given.move(moved, where, self.is_viewed(number))
            if given.wrong:
                views = [r for event in self.views() for r in event.results if self.root(r) == number]
                self._after_move.update((one, GradFn.WRONG) for one in (number, *views))
                return
        if base_of(tensor) is not None:
            if mode.grad and tracked:
                self._moved_views.append(moved)
            # The version counter is bumped only after the op.
            seen = operators.version(tensor) + 1 if mode.grad else GradFn.STALE
            self._after_move[number] = GradFn.WRONG if sets else seen
            return
        for event in self.views():  # views of it keep their layout
            stale = (r for r in event.results if base_of(self.tensors[r]) is not None and self.root(r) == number)
            self._after_move.update((r, GradFn.STALE) for r in stale)

    def _note_use(self, args: tuple[Any, ...]) -> None:
        """Autograd reads the `grad_fn` of each argument, which must be eager's."""
        if not (self._after_move or self._orphans) or not torch.is_grad_enabled():
            return
        for tensor in pytree.tree_leaves(args):
            number = self.number(tensor)
            if number in self._after_move and self._is_stale(number) and tensor.requires_grad:
                self.unrepeatable = self.moved_view()
            if self._orphans and isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                root = self.root(number)
                if root in self._orphans:
                    self.given[root].use()

    def _is_stale(self, tensor: TensorNumber) -> bool:
        """Whether a view in `_after_move` will have another `grad_fn` than in eager at its next use."""
        good_for = self._after_move[tensor]
        if good_for in (GradFn.WRONG, operators.version(self.tensors[tensor])):
            return good_for is GradFn.WRONG
        return not self._is_repeated(tensor)

    def _is_repeated(self, tensor: TensorNumber) -> bool:
        """Whether repeating the operators that made a view gives its current layout."""
        view = self.tensors[tensor]
        known = self.number(base_of(view))
        base, path = self.path(tensor, lambda one: one == known)
        given = self.given.get(base) if base != known else None
        start = given.start if given is not None else None
        return (base == known or given is not None) and self.layout_after(base, path, start) == layout(view)

    def in_storage(
        self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Any, list[tuple[Any, ...]], bool] | None:
        """Replace a view operator by `as_strided` of the tensor that owns the memory, if the chain of views contains
        one.

        Functionalization supports writes through `as_strided` only if that is the only view in the chain. `as_strided`
        addresses the storage, so a chain with one in it equals a single `as_strided` of the owner. Returns the owner,
        the (size, stride, offset) of each result, and whether the operator returns a list; None for any other operator,
        and for a composite one (`narrow`, `reshape`): the operators that it decomposes to follow, and may be copies.
        """
        tensor: Any = args[0] if args else None
        number = self.number(tensor)
        if self.origin(number) is None or operators.aliasing(operator) != "view" or not functional.is_plain(tensor):
            return None
        if operator is not torch.ops.aten.as_strided.default and number not in self.placed:
            return None
        root = self.owner(tensor)
        moved = {event.tensor for event in self.metadata_ops()}
        # A subclass is the owner of a part, such as the values of a jagged tensor.
        if is_subclass(root) or root.dtype != tensor.dtype or moved.intersection((number, self.number(root))):
            return None
        results = geometry(operator, tensor.dtype, layout(tensor), args[1:], kwargs)
        if results is None:
            return None
        return (root, results, True) if isinstance(results, list) else (root, [results], False)

    def _misplaces_gradients(self, tensor: TensorNumber) -> bool:
        """Whether a write goes through `as_strided` of a tensor that does not begin where its storage begins. Its
        backward has the gradient of the whole tensor in separate memory, and would use the offset there."""
        root = self.root(tensor)
        if tensor not in self.placed or layout(self.tensors[root]).offset == 0:
            return False
        event = self.origin(tensor)
        assert event is not None
        place = (*event.args, event.kwargs.get("storage_offset"))[2:]
        strided = event.operator is torch.ops.aten.as_strided.default
        return not strided or event.source != root or any(offset is not None for offset in place)

    def places_in(self, tensor: torch.Tensor, before_a_write: bool = False) -> list[Layout]:
        """The layouts of the views of a tensor that `as_strided` made, and of views of those."""
        number = self.number(tensor)
        last = max((k for k, _ in self.writes_to(number)), default=0)
        views = self.views_of_memory(number, self.events[:last] if before_a_write else self.events)
        return [where for view, where in views if view in self.placed]

    def layout_after(self, root: TensorNumber, path: Path, start: Layout | None = None) -> Layout | None:
        """The layout that these statements produce from `start`, or from the layout of `root` in the caller's memory.
        None if it is not known."""
        where, dtype = start or layout(self.tensors[root]), self.tensors[root].dtype
        for event, k in path:
            given = pytree.tree_leaves([event.args, dict(event.kwargs)])
            if any(isinstance(one, TensorNumber) for one in given):
                return None
            found = geometry(event.operator, dtype, where, event.args, event.kwargs)
            if found is None or (event.several and k >= len(found)):
                return None
            where = Layout(*(found[k] if event.several else found))
        return where

    def callers_layout(self, tensor: torch.Tensor) -> Layout:
        """The layout of a tensor in the caller's memory; the one in the trace, if that cannot be told."""
        return self.known_layout(tensor) or layout(tensor)

    def known_layout(self, tensor: torch.Tensor) -> Layout | None:
        """The layout of a tensor in the caller's memory; None if that cannot be told.

        A view that is taken after a write begins, in the trace, where it begins in the written value. That is another
        place if an input does not begin where its storage does. For such a view, the statements that took it are
        repeated from there.
        """
        number, path = self.path(self.number(tensor))
        root = self.tensors[number] if path else None
        if root is None or not (functional.has_storage(root) and functional.data_mutated(root) and layout(root).offset):
            return layout(tensor)
        passed = {number, *(event.results[k] for event, k in path)}
        if any(event.tensor in passed for event in self.metadata_ops()):
            return None
        return self.layout_after(number, path)

    def writes_of(self, tensor: torch.Tensor) -> int:
        """The number of operators that wrote this very tensor, not a view of it.

        Under inference mode, operators that wrote or moved its views count too: functional tensors have no version
        counter there, while the caller's tensor has one. A view of another dtype has its own counter.
        """
        number = self.number(tensor)
        if not torch.is_inference_mode_enabled():
            own = (event for event in self.changes_of.get(number, ()) if event not in self.events_below)
            return sum(isinstance(event, Wrote) and event.counts for event in own)
        count = 0
        for event in (event for _, event in self.changes() if event.counts and event not in self.events_below):
            source, path = self.path(event.tensor, lambda one: one == number)
            apart = (e.operator is torch.ops.aten.view.dtype or self.counts_apart(e.results[k]) for e, k in path)
            count += source == number and not any(apart)
        return count

    def uncounted_writes_of(self, number: TensorNumber) -> int:
        """The same, of operators whose write eager does not count."""
        writes = (event for event in self.changes_of.get(number, ()) if isinstance(event, Wrote))
        return sum(event.operator is not None and not event.counts for event in writes)

    def moved_views(self) -> list[torch.Tensor]:
        """The viewed arguments that a metadata op has changed so far, and that are views, not leaves, of the caller."""
        moved = (event.tensor for event in self.metadata_ops() if self.is_viewed(event.tensor))
        return [self.tensors[one] for one in moved if one in self.given and self.given[one].kind is not Kind.OWNER]

    def moved_view(self) -> MetadataOp | None:
        """The last in-place metadata op on a view in grad mode, else on any; see Note [Views changed in place]."""
        return next(reversed([*self.metadata_ops(), *self._moved_views]), None)


def mode_now() -> Mode:
    return Mode(torch.is_grad_enabled(), torch.is_inference_mode_enabled())
