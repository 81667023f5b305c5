"""A record of what a program does with aliases: views, in-place metadata ops, and writes, statement by statement.

A functional graph shows the values of views, but not the tensors that the user holds: after a write, functionalization
recomputes each view from the written base, in whatever mode is then on. So the ledger sees each operator before it is
functionalized, and records which tensor object came from which. From this record the wrapper repeats the user's
statements on real tensors, in the user's order (`replay.py`), with the `grad_fn`, base and modes of eager.

Note [Views changed in place]
When a view is transposed in place, autograd gives its base a new `grad_fn`, which expects the gradient of the viewed
part in the new layout. On real tensors autograd finds that part by its strides. In a trace it repeats the operators
that made the view, and these do not include the transposition. So if the view, or a view of it, is written afterwards,
or used after something that shares its memory was written, the gradients of the trace differ from eager's, or have a
shape that does not fit. A metadata op that autograd does not see is itself such a write.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.refusals import Refused
from aotviz.ir.symbolic_sizes import hint
from aotviz.ir.view_and_mutation import Layout
from aotviz.ir.wrapper_subclasses import is_subclass, parts
from aotviz.torch_private import dispatch, operators
from aotviz.torch_private.tensors import base_of, storage_key
from aotviz.tracing import functional, overlap
from aotviz.tracing.argument_state import ArgumentState, Kind
from aotviz.tracing.fakes import geometry
from aotviz.tracing.hidden_aliases import HiddenAliases
from aotviz.tracing.views import contiguous, layout, strides_in


@dataclass(frozen=True)
class Mode:
    """The modes that a statement ran under."""

    grad: bool
    inference: bool

    @classmethod
    def now(cls) -> Mode:
        return cls(torch.is_grad_enabled(), torch.is_inference_mode_enabled())


@dataclass(frozen=True, eq=False)
class Viewed:
    """`results = operator(source, *args, **kwargs)`, each a view or a detached alias of `source`."""

    results: tuple[torch.Tensor, ...]
    layouts: tuple[Layout, ...]  # one per result, at the time of the statement
    source: torch.Tensor
    source_layout: Layout  # at the same time
    operator: Any
    args: tuple[Any, ...]  # after the source
    kwargs: Mapping[str, Any]
    several: bool  # the operator returns a list
    mode: Mode
    node: fx.Node | None = None  # its node in the graph, if it has one


@dataclass(frozen=True, eq=False)
class MetadataOp:
    """`operator(tensor, *args, **kwargs)` changed the shape or strides of `tensor` in place. `where`: its layout
    afterwards. `tracked`: it required grad, so that autograd records the op in grad mode."""

    tensor: torch.Tensor
    operator: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    mode: Mode
    node: fx.Node | None = None
    where: Layout | None = None
    tracked: bool = True


@dataclass(frozen=True, eq=False)
class Wrote:
    """`operator` wrote the data of `tensor` in place. `where`: the layout at that time of the tensor that owns the
    memory."""

    tensor: torch.Tensor
    mode: Mode
    operator: Any = None
    node: fx.Node | None = None
    where: Layout | None = None


@dataclass(frozen=True, eq=False)
class Marked:
    """The method `requires_grad_` or `detach_` changed whether `tensor` requires grad. `after`: the node before it."""

    tensor: torch.Tensor
    on: bool
    method: str
    after: fx.Node | None = None


@dataclass(frozen=True, eq=False)
class Hooked:
    """A hook to register on the caller's tensor with this method, such as `register_hook`, and these arguments.

    With several tensors, `method` is a torch function that takes them first.
    """

    tensors: tuple[Any, ...]
    method: str
    arguments: tuple[Any, ...]
    why: str = ""  # why the hook cannot become part of the graph


@dataclass(frozen=True, eq=False)
class TracedHook:
    """A hook that became part of the trace. If it cannot be traced, `why` says so, and the run must be repeated."""

    number: int
    tensor: torch.Tensor
    position: int  # among the events
    why: str


@dataclass(frozen=True)
class Left:
    """The data left in a storage when the tensor that owns it is given another one."""

    value: Any  # not a functional tensor, but the fake that the graph computed
    layout: Layout


@dataclass(frozen=True)
class ResizedStorage:
    """`tensor.untyped_storage().resize_(size)`. `tensor` owns the memory; `after`: the node before the statement."""

    tensor: torch.Tensor
    size: int  # bytes
    was: int  # the size before, in the trace
    after: fx.Node


Event = Viewed | MetadataOp | Wrote | Marked | Hooked


class GradFn(Enum):
    """The state of the `grad_fn` of a moved view, or of a view of one, where no version number expresses it."""

    STALE = "autograd must regenerate it"
    WRONG = "it differs from eager's"


class Ledger:
    """The events of one run, in order. Its tensors are the functional tensors that the user's code held."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.open = False
        self.meets_subclass = False  # an operator was called with one
        self.differentiated: set[int] = set()  # arguments whose gradient the function asks for, by position
        self._origin: dict[int, Viewed] = {}
        self._writes: Counter[int] = Counter()  # id of a tensor -> number of operators whose write eager counts
        self.uncounted_writes: Counter[int] = Counter()  # the same, of those whose write eager does not count
        self._taken: defaultdict[int, list[Viewed]] = defaultdict(list)  # id of a tensor -> the views taken of it
        self.placed: set[int] = set()  # ids of tensors with an `as_strided` in the chain of views that led to them
        self.storages: dict[int, int] = {}  # id of an argument -> the key of its storage
        self.sizes_before: dict[int, Any] = {}  # id of an argument -> the bytes of its storage
        self.of_subclasses: set[int] = set()  # ids of arguments that are subclasses, and of their parts
        self.resized_storages: list[ResizedStorage] = []
        self.read_sizes: dict[int, int] = {}  # id of a tensor -> the bytes of its storage that the function read
        self._resized: set[int] = set()  # ids of views with gaps that now cover other elements, after `resize_`
        self._moved_views: list[MetadataOp] = []  # in grad mode
        self._after_move: dict[int, int | GradFn] = {}  # id of one, or of a view of it -> version of its right grad_fn
        self.hidden = HiddenAliases()
        self.given: dict[int, ArgumentState] = {}  # id of an argument that requires grad
        self._orphans: list[torch.Tensor] = []  # arguments of Kind.ORPHAN
        self.read_data: dict[int, Any] = {}  # id -> a value that the attribute `.data` returned
        self.below: set[int] = set()  # ids of events below autograd, by a subclass on its parts, and of the views taken
        self.hooked: list[TracedHook] = []
        self.unrepeatable: MetadataOp | None = None  # see Note [Views changed in place]
        self.assigned: list[torch.Tensor] = []  # tensors whose `.data` was assigned
        self.left: dict[int, Left | None] = {}  # id of a tensor -> the data left in its first storage, if written
        self.parted: list[tuple[int, torch.Tensor, str]] = []  # (event, what it gave another storage, refusal)

    def give(self, argument: Any, passed: Any, as_view: bool) -> None:
        """Called before the run with each argument, and the tensor that was passed for it."""
        if functional.is_functional(argument) and functional.has_storage(passed):
            self.storages[id(argument)] = storage_key(passed)
            self.sizes_before[id(argument)] = passed.untyped_storage().nbytes()
        if is_subclass(argument):
            self.of_subclasses.update(map(id, (argument, *parts(argument))))
        if functional.is_functional(argument) and passed.requires_grad and not is_subclass(argument):
            where = layout(argument)
            given = self.given[id(argument)] = ArgumentState(
                Kind.of(passed), as_view, where, overlap.hinted(where).order
            )
            if given.kind is Kind.ORPHAN:
                self._orphans.append(argument)

    def is_itself(self, tensor: torch.Tensor, value: Any) -> bool:
        """Whether `value` is `tensor`, or a detached alias of all of it. Giving the tensor the memory of such a value
        (by `set_` or `.data`) changes nothing. `module.to(dtype)` does this with each parameter that already has the
        dtype."""
        if value is tensor or not functional.is_functional(value) or id(tensor) in self.left:
            return value is tensor
        source, path = self.path(value, lambda one: one is tensor)
        detached = all(event.operator is torch.ops.aten.detach.default for event, _ in path)
        return source is tensor and detached and layout(value) == layout(tensor)

    def leave(self, tensor: torch.Tensor) -> None:
        """Called before a tensor is given another storage: others that share the old one must see what was written to
        it."""
        if self.open and id(tensor) not in self.left:
            written = any(isinstance(event, Wrote) and self.root(event.tensor) is tensor for event in self.events)
            self.left[id(tensor)] = Left(functional.inner(tensor), layout(tensor)) if written else None

    def assign(self, tensor: torch.Tensor, given: bool) -> None:
        """Called after `tensor.data` was assigned, which does not bump the version counter. `given`: it is an input."""
        self.assigned.append(tensor)
        if given:
            self.events.append(Wrote(tensor, Mode.now()))
        elif base_of(tensor) is None and not self.is_viewed(tensor):
            self._origin.pop(id(tensor), None)  # it is no longer an alias
        else:
            self.parted.append((len(self.events) - 1, tensor, "data is assigned"))

    def refuse_parted(self, leaving: Iterable[Any], given: Set[int]) -> None:
        """Refuse results, and writes, that share memory with a tensor that was given another storage. These are aliases
        of a view's new storage, and aliases of the old storage of a tensor that is not a view. `given` are the ids of
        the inputs."""
        if not self.parted and not self.assigned:
            return
        place = {id(event): k for k, event in enumerate(self.events)}
        written = [(k, event.tensor) for k, event in enumerate(self.events) if isinstance(event, Wrote)]
        for position, tensor in self.replacements():
            if id(tensor) in given and any(k < position and self.root(one) is tensor for k, one in written):
                paths = [self.path(end)[1] for end in leaving if self.root(end) is tensor]
                if any(path and place[id(path[0][0])] < position for path in paths):
                    raise Refused("old storage is written", "an input")
        for position, tensor, reason in self.parted:
            if id(tensor) in given:
                self._refuse_shared(position, tensor, written, given)
                continue
            ends = [*leaving, *(one for k, one in written if k > position and self.origin(tensor) is not None)]
            for end in ends:
                root, path = self.path(end, lambda one, tensor=tensor: one is tensor)
                late = not path or place[id(path[0][0])] > position
                if root is tensor and (late if self.origin(tensor) is not None else not late):
                    whose = "a view" if self.origin(tensor) is not None else "an intermediate"
                    whole = f"{whose} and an alias of it" if reason.startswith("alias") else whose
                    raise Refused(reason, whole)
                if root is tensor and self._is_held(self._source(position), leaving, given):
                    raise Refused(reason, "an intermediate, after set_, and what it was set to")

    def _refuse_shared(
        self, position: int, tensor: torch.Tensor, written: Sequence[tuple[int, Any]], given: Set[int]
    ) -> None:
        """Refuse that an input gets the storage of another input which the call writes: both would have to see the
        writes."""
        source = self._source(position)
        if source is None or id(self.root(source)) not in given:
            return
        whose = self.root(source)
        seen = (self.root(one) is whose or (k > position and self.root(one) is tensor) for k, one in written)
        if whose is tensor or any(seen):
            raise Refused("alias is given another storage", "an input, after set_, and another one")

    def _source(self, position: int) -> torch.Tensor | None:
        """The tensor whose storage the `set_` at this position passes on, or None if the event is not such a `set_`."""
        event = self.events[position] if position < len(self.events) else None
        if not (isinstance(event, MetadataOp) and event.args and operators.sets_storage(event.operator)):
            return None
        return event.args[0] if functional.is_functional(event.args[0]) else None

    def _is_held(self, source: torch.Tensor | None, leaving: Iterable[Any], given: Set[int]) -> bool:
        """Whether the caller has a tensor over the storage of `source`: an input or a result."""
        while source is not None:
            root = self.root(source)
            if id(root) in given or any(self.root(end) is root for end in leaving):
                return True
            source = next((self._source(k) for k, tensor, _ in self.parted if tensor is root), None)
        return False

    def turns_on_later(self, position: int) -> bool:
        """Whether `requires_grad_()` is called on any tensor after this event."""
        return any(isinstance(event, Marked) and event.on for event in self.events[position + 1 :])

    def marks_of(self, tensor: torch.Tensor) -> list[int]:
        """The positions of the events that set `requires_grad` of a tensor."""
        return [k for k, event in enumerate(self.events) if isinstance(event, Marked) and event.tensor is tensor]

    def note(
        self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, node: fx.Node | None = None
    ) -> bool:
        """Called after each operator, with its node. Returns whether the operator concerns aliases."""
        kind = operators.aliasing(operator)
        if kind == "plain" or not args:
            if self._after_move or self._orphans:
                self._note_use(args)
            return False
        first, rest = args[0], args[1:]
        if kind == "view":
            several = isinstance(result, (list, tuple))
            results = tuple(result) if several else (result,)
            fresh = (functional.is_functional(r) and r is not first and id(r) not in self._origin for r in results)
            if not (functional.is_functional(first) and results and all(fresh)):
                return False
            layouts = tuple(map(layout, results))
            if operator is torch.ops.aten.as_strided.default or id(first) in self.placed:
                self.placed.update(map(id, results))
            good_for = self._after_move.get(id(first))
            if good_for is not None and operator is not torch.ops.aten.detach.default:
                given = self.given.get(id(first)) if good_for is GradFn.STALE and base_of(first) is not None else None
                # Of an argument: the order of its elements differs from that in what the trace takes it for a view of.
                stale = self._is_stale(first) if given is None else given.order != overlap.hinted(given.start).order
                if stale or good_for is not GradFn.STALE:  # autograd sets their base only later
                    self._after_move.update((id(r), GradFn.WRONG if stale else good_for) for r in results)
            mode, place = Mode.now(), layout(first)
            event = Viewed(results, layouts, first, place, operator, rest, dict(kwargs), several, mode, node)
            self.events.append(event)
            self._taken[id(first)].append(event)
            self._origin.update((id(r), event) for r in results)
        elif kind == "move":
            if functional.is_functional(first):
                if operators.sets_storage(operator):
                    self.parted.append((len(self.events), first, "alias is given another storage"))
                moved = MetadataOp(
                    first, operator, rest, dict(kwargs), Mode.now(), node, layout(first), first.requires_grad
                )
                self.events.append(moved)
                self._note_move(moved)
        else:
            if self._after_move or self._orphans:
                self._note_use(rest)
            for tensor in operators.written(operator, args, kwargs):
                if functional.is_functional(tensor):
                    self.note_write(operator, tensor, node, (*rest, *kwargs.values()))
                    if operators.counts_unseen(operator):
                        functional.increment_version((tensor,))
        return True

    def note_write(self, operator: Any, tensor: torch.Tensor, node: fx.Node | None, others: Iterable[Any] = ()) -> None:
        """Called after an operator wrote the data of a tensor, with its other arguments."""
        mode, sources = Mode.now(), (event.source for event, _ in self.path(tensor)[1])
        if self._resized and self._resized.intersection(map(id, (tensor, *sources))):
            raise Refused("resized after a write", "a view")
        differentiable = mode.grad and _require_grad(tensor, *others)
        if differentiable and self._misplaces_gradients(tensor):
            raise Refused("as_strided in a chain of views", "a tensor")
        self.events.append(Wrote(tensor, mode, operator, node, layout(self.root(tensor))))
        (self._writes if operators.counts_writes(operator) else self.uncounted_writes)[id(tensor)] += 1
        if differentiable and id(tensor) in self._after_move and not self._is_repeated(tensor):
            self.unrepeatable = self.moved_view()

    def note_of_subclass(self, operator: Any, args: Any, kwargs: Any, result: Any, first: int) -> None:
        """The same, for an operator on a subclass, after those that its class called: the events from `first`. A view
        (`jagged.values()`) may be an alias that the class made of a part. To autograd it is a view of the whole."""
        for one in result if isinstance(result, (list, tuple)) else (result,):
            inside = self._origin.get(id(one))
            if inside is not None and operators.aliasing(operator) == "view":
                for alias in inside.results:
                    del self._origin[id(alias)]
                self.events.remove(inside)
                self._taken[id(inside.source)].remove(inside)
        made = self.events[first:]
        self.below.update(id(one) for e in made for one in (e.results if isinstance(e, Viewed) else (e,)))
        self._writes.subtract(
            id(e.tensor) for e in made if isinstance(e, Wrote) and operators.counts_writes(e.operator)
        )
        self.note(operator, args, kwargs, result)

    def resize_storage(self, tensor: torch.Tensor, size: Any, after: fx.Node) -> None:
        """Called instead of `untyped_storage().resize_`. The graph computes with values, not with the memory of an
        input, so it needs no such operator; see tracing/storage_sizes.py."""
        root = self.root(tensor)
        if id(root) in self.of_subclasses:
            raise Refused("storage is resized", "a tensor subclass")
        if id(root) in self.left:
            raise Refused("storage is resized", "a tensor that set_ has given another storage")
        self.resized_storages.append(ResizedStorage(root, int(size), self.size_before(root), after))

    def size_before(self, root: torch.Tensor) -> int:
        """The bytes of a tensor's storage before the function resizes it."""
        known = self.sizes_before.get(id(root))
        return hint(functional.held(root).untyped_storage().nbytes() if known is None else known)

    def note_resize(self, tensor: torch.Tensor, size: Sequence[Any]) -> None:
        """Called before `resize_`. A view with gaps may then cover other elements, which the trace would not write."""
        if not self.open or id(tensor) not in self._origin or contiguous(layout(tensor)):
            return
        where = Layout(tuple(size), strides_in(range(len(size)), size), tensor.storage_offset())
        with dispatch.without_modes():
            if not overlap.covers(layout(tensor), where):
                self._resized.add(id(tensor))

    def _note_move(self, moved: MetadataOp) -> None:
        """See Note [Views changed in place]."""
        tensor = moved.tensor
        given = self.given.get(id(tensor))
        if given is not None:
            given.move(moved, self.is_viewed(tensor))
            if given.wrong:
                views = [r for event in set(self._origin.values()) for r in event.results if self.root(r) is tensor]
                self._after_move.update((id(one), GradFn.WRONG) for one in (tensor, *views))
                return
        if base_of(tensor) is not None:
            if moved.mode.grad and tensor.requires_grad:
                self._moved_views.append(moved)
            # The version counter is bumped only after the op.
            self._after_move[id(tensor)] = operators.version(tensor) + 1 if moved.mode.grad else GradFn.STALE
            if operators.sets_storage(moved.operator):
                self._after_move[id(tensor)] = GradFn.WRONG
            return
        for event in set(self._origin.values()):  # views of it keep their layout
            stale = [r for r in event.results if base_of(r) is not None and self.root(r) is tensor]
            self._after_move.update((id(r), GradFn.STALE) for r in stale)

    def _note_use(self, args: tuple[Any, ...]) -> None:
        """Autograd reads the `grad_fn` of each argument, which must be eager's."""
        if not torch.is_grad_enabled():
            return
        for argument in args:
            for tensor in argument if isinstance(argument, (list, tuple)) else (argument,):
                if id(tensor) in self._after_move and self._is_stale(tensor) and tensor.requires_grad:
                    self.unrepeatable = self.moved_view()
                if self._orphans and isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                    root = self.root(tensor)
                    if any(root is orphan for orphan in self._orphans):
                        self.given[id(root)].use()

    def _is_stale(self, tensor: torch.Tensor) -> bool:
        """Whether a view in `_after_move` will have another `grad_fn` than in eager at its next use."""
        good_for = self._after_move[id(tensor)]
        if good_for in (GradFn.WRONG, operators.version(tensor)):
            return good_for is GradFn.WRONG
        return not self._is_repeated(tensor)

    def _is_repeated(self, view: torch.Tensor) -> bool:
        """Whether repeating the operators that made a view gives its current layout."""
        base, path = self.path(view, lambda one: one is base_of(view))
        given = self.given.get(id(base)) if base is not base_of(view) else None
        known = base is base_of(view) or given is not None
        return known and self.layout_after(base, path, given.start if given is not None else None) == layout(view)

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
        event = self._origin.get(id(tensor))
        if event is None or operators.aliasing(operator) != "view" or not functional.is_functional(tensor):
            return None
        strided = torch.ops.aten.as_strided.default
        if (operator is not strided and id(tensor) not in self.placed) or is_subclass(tensor):
            return None
        root = self.root(tensor)
        if is_subclass(root):  # a part of one, such as the values of a jagged tensor
            return None
        moved = (e.tensor for e in self.events if isinstance(e, MetadataOp))
        if root.dtype != tensor.dtype or any(one is root or one is tensor for one in moved):
            return None
        results = geometry(operator, tensor.dtype, layout(tensor), args[1:], kwargs)
        if results is None:
            return None
        several = isinstance(results, list)
        return root, results if isinstance(results, list) else [results], several

    def _misplaces_gradients(self, tensor: torch.Tensor) -> bool:
        """Whether a write goes through `as_strided` of a tensor that does not begin where its storage begins. Its
        backward has the gradient of the whole tensor in separate memory, and would use the offset there."""
        if id(tensor) not in self.placed or layout(self.root(tensor)).offset == 0:
            return False
        event = self._origin[id(tensor)]
        place = (*event.args, event.kwargs.get("storage_offset"))[2:]
        strided = event.operator is torch.ops.aten.as_strided.default
        return not strided or event.source is not self.root(tensor) or any(offset is not None for offset in place)

    def places_in(self, tensor: torch.Tensor, before_a_write: bool = False) -> list[Layout]:
        """The layouts of the views of a tensor that `as_strided` made, and of views of those."""
        writes = (k for k, e in enumerate(self.events) if isinstance(e, Wrote) and self.root(e.tensor) is tensor)
        views = self.views_of_memory(tensor, self.events[: max(writes, default=0)] if before_a_write else self.events)
        return [where for view, where in views if id(view) in self.placed]

    def views_of_memory(self, tensor: torch.Tensor, events: Iterable[Event]) -> Iterator[tuple[torch.Tensor, Layout]]:
        """The views of a tensor's memory, each with its layout when it was taken."""
        for event in events:
            if isinstance(event, Viewed):
                pairs = zip(event.results, event.layouts, strict=True)
                yield from ((view, where) for view, where in pairs if self.root(view) is tensor)

    def layout_after(
        self, root: torch.Tensor, path: Sequence[tuple[Viewed, int]], start: Layout | None = None
    ) -> Layout | None:
        """The layout that these statements produce from `start`, or from the layout of `root` in the caller's memory.
        None if it is not known."""
        where, dtype = start or layout(root), root.dtype
        for event, k in path:
            found = geometry(event.operator, dtype, where, event.args, event.kwargs)
            if found is None or (event.several and k >= len(found)):
                return None
            where = Layout(*(found[k] if event.several else found))
        return where

    def origin(self, tensor: torch.Tensor) -> Viewed | None:
        """The statement that made `tensor` as an alias of another, or None if it has memory of its own."""
        return self._origin.get(id(tensor))

    def is_viewed(self, tensor: torch.Tensor) -> bool:
        """Whether the function took a view or detached alias of this very tensor."""
        return id(tensor) in self._taken

    def views_in(self, tensor: torch.Tensor) -> list[Viewed]:
        """The statements that took a view (not a detached alias) of this very tensor."""
        taken = self._taken.get(id(tensor), ())
        return [event for event in taken if event.operator is not torch.ops.aten.detach.default]

    def views_of(self, base: torch.Tensor) -> list[torch.Tensor]:
        """The tensors made by the function that autograd knows as views of `base`."""
        return [r for event in dict.fromkeys(self._origin.values()) for r in event.results if base_of(r) is base]

    def path(self, tensor: torch.Tensor, stop: Any = lambda _: False) -> tuple[torch.Tensor, list[tuple[Viewed, int]]]:
        """Follow the aliases from `tensor` up to an ancestor for which `stop` holds, or that is not an alias. Returns
        that ancestor, and the statements from there down, each with the number of its result on the path."""
        steps: list[tuple[Viewed, int]] = []
        while not stop(tensor):
            event = self.origin(tensor)
            if event is None:
                break
            steps.append((event, next(k for k, r in enumerate(event.results) if r is tensor)))
            tensor = event.source
        return tensor, steps[::-1]

    def root(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor that owns the memory of `tensor`."""
        return self.path(tensor)[0]

    def sets_of(self, tensor: torch.Tensor) -> int:
        """How often `set_` gave it another storage. Dynamo makes one of `x.data = ...`, and corrects the count."""
        return sum(
            isinstance(e, MetadataOp) and e.tensor is tensor and operators.sets_storage(e.operator) for e in self.events
        )

    def writes_of(self, tensor: torch.Tensor) -> int:
        """The number of operators that wrote this very tensor, not a view of it.

        Under inference mode, operators that wrote or moved its views count too: functional tensors have no version
        counter there, while the caller's tensor has one. A view of another dtype has its own counter.
        """
        if not torch.is_inference_mode_enabled():
            return self._writes[id(tensor)]
        events = (e for e in self.events if isinstance(e, (MetadataOp, Wrote)) and id(e) not in self.below)
        counted = (e for e in events if isinstance(e, MetadataOp) or operators.counts_writes(e.operator))
        return sum(self._counts_for(e.tensor, tensor) for e in counted)

    def _counts_for(self, alias: torch.Tensor, tensor: torch.Tensor) -> bool:
        source, path = self.path(alias, lambda one: one is tensor)
        apart = (e.operator is torch.ops.aten.view.dtype or self.counts_apart(e.results[k]) for e, k in path)
        return source is tensor and not any(apart)

    def replacements(self) -> list[tuple[int, torch.Tensor]]:
        """(Position among the events, tensor) of each tensor that was given another storage."""
        changes = ((k, e) for k, e in enumerate(self.events) if isinstance(e, Wrote | MetadataOp))
        return [(k, e.tensor) for k, e in changes if e.operator is None or operators.sets_storage(e.operator)]

    def from_data(self, alias: torch.Tensor) -> bool:
        """Whether the attribute `.data` returned it."""
        return id(alias) in self.read_data

    def counts_apart(self, alias: torch.Tensor) -> bool:
        """Whether an alias has its own version counter: `.data` returned it, or a subclass took it."""
        return id(alias) in self.read_data or id(alias) in self.below

    def moved_views(self) -> list[torch.Tensor]:
        """The viewed arguments that a metadata op has changed so far, and that are views, not leaves, of the caller."""
        moved = (e.tensor for e in self.events if isinstance(e, MetadataOp) and self.is_viewed(e.tensor))
        return [one for one in moved if id(one) in self.given and self.given[id(one)].kind is not Kind.OWNER]

    def moved_view(self) -> MetadataOp | None:
        """The last in-place metadata op on a view in grad mode, else on any; see Note [Views changed in place]."""
        return next(reversed([*(e for e in self.events if isinstance(e, MetadataOp)), *self._moved_views]), None)


def _require_grad(*values: Any) -> bool:
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)
