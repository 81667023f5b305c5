"""What a run of the user's function did, as data: frozen events about tensors that have numbers, and questions to them.

Nothing here knows a tensor, and nothing imports torch. The ledger gives the tensors their numbers and adds the events
(`ledger.py`); what still has to be read from a live tensor is asked of it there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotviz.ir.view_and_mutation import Layout

if TYPE_CHECKING:
    from torch import fx


class TensorNumber(int):
    """A tensor of the run: 0 and up in the order in which the events meet them, arguments first. A tensor that no event
    is about has a number below 0."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"t{int(self)}"


@dataclass(frozen=True)
class Mode:
    """The modes that a statement ran under. In the forward of a custom autograd.Function `grad` is False, though
    gradients pass it."""

    grad: bool
    inference: bool


@dataclass(frozen=True, eq=False)
class Viewed:
    """`results = operator(source, *args, **kwargs)`, each a view or a detached alias of `source`. Tensors among the
    arguments are numbers."""

    results: tuple[TensorNumber, ...]
    layouts: tuple[Layout, ...]  # one per result, at the time of the statement
    source: TensorNumber
    source_layout: Layout  # at the same time
    operator: Any
    args: tuple[Any, ...]  # after the source
    kwargs: Mapping[str, Any]
    several: bool  # the operator returns a list
    detaches: bool  # the results are no views to autograd
    mode: Mode
    node: fx.Node | None = None  # its node in the graph, if it has one


@dataclass(frozen=True, eq=False)
class MetadataOp:
    """`operator(tensor, *args, **kwargs)` changed the shape or strides of `tensor` in place. `where`: its layout
    afterwards. `tracked`: it required grad, so that autograd records the op in grad mode."""

    tensor: TensorNumber
    operator: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    mode: Mode
    node: fx.Node | None = None
    where: Layout | None = None
    tracked: bool = True
    sets_storage: bool = False  # it gave the tensor the storage of another
    counts: bool = True  # in the version counter


@dataclass(frozen=True, eq=False)
class Wrote:
    """`operator` wrote the data of `tensor` in place; None: `.data` was assigned. `where`: the layout at that time of
    the tensor that owns the memory. `counts`: eager bumps the version counter."""

    tensor: TensorNumber
    mode: Mode
    operator: Any = None
    node: fx.Node | None = None
    where: Layout | None = None
    counts: bool = True

    @property
    def sets_storage(self) -> bool:
        return self.operator is None


@dataclass(frozen=True, eq=False)
class Marked:
    """The method `requires_grad_` or `detach_` changed whether `tensor` requires grad. `after`: the node before it."""

    tensor: TensorNumber
    on: bool
    method: str
    after: fx.Node | None = None


@dataclass(frozen=True, eq=False)
class Hooked:
    """A hook to register on the caller's tensor with this method, such as `register_hook`, and these arguments.

    With several tensors, `method` is a torch function that takes them first.
    """

    tensors: tuple[TensorNumber, ...]
    method: str
    arguments: tuple[Any, ...]
    why: str = ""  # why the hook cannot become part of the graph


@dataclass(frozen=True)
class TracedHook:
    """A hook that became part of the trace. If it cannot be traced, `why` says so, and the run must be repeated."""

    number: int
    tensor: TensorNumber
    position: int  # among the events
    why: str


@dataclass(frozen=True)
class ResizedStorage:
    """`tensor.untyped_storage().resize_(size)`. `tensor` owns the memory; `after`: the node before the statement."""

    tensor: TensorNumber
    size: int  # bytes
    was: int  # the size before, in the trace
    after: fx.Node


Event = Viewed | MetadataOp | Wrote | Marked | Hooked
Path = list[tuple[Viewed, int]]  # statements that took views of each other, each with the number of its result


class Log:
    """The events of one run, in order."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = []
        self._origin: dict[TensorNumber, Viewed] = {}
        self._taken: defaultdict[TensorNumber, list[Viewed]] = defaultdict(list)  # tensor -> the views taken of it
        self.changes_of: defaultdict[TensorNumber, list[MetadataOp | Wrote]] = defaultdict(list)  # tensor -> its own
        self.below: set[TensorNumber] = set()  # results of views that a subclass took of its parts, below autograd
        self.events_below: set[Event] = set()
        self.read_data: set[TensorNumber] = set()  # tensors that the attribute `.data` returned
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Viewed):
            self._taken[event.source].append(event)
            self._origin.update(dict.fromkeys(event.results, event))
        elif isinstance(event, MetadataOp | Wrote):
            self.changes_of[event.tensor].append(event)

    def remove(self, event: Event) -> int:
        """Take an event back: a hook that the function removed, a view that was one inside of a subclass. Returns its
        position, from which on the others move up."""
        position = self.events.index(event)
        del self.events[position]
        if isinstance(event, Viewed):
            self._taken[event.source].remove(event)
            for result in event.results:
                del self._origin[result]
        return position

    def part(self, tensor: TensorNumber) -> None:
        """Called when a tensor is given memory of its own: it is no longer an alias."""
        self._origin.pop(tensor, None)

    def origin(self, tensor: TensorNumber) -> Viewed | None:
        """The statement that made `tensor` as an alias of another, or None if it has memory of its own."""
        return self._origin.get(tensor)

    def path(
        self, tensor: TensorNumber, stop: Callable[[TensorNumber], bool] = lambda _: False
    ) -> tuple[TensorNumber, Path]:
        """Follow the aliases from `tensor` up to an ancestor for which `stop` holds, or that is not an alias. Returns
        that ancestor, and the statements from there down, each with the number of its result on the path."""
        steps: Path = []
        while not stop(tensor):
            event = self.origin(tensor)
            if event is None:
                break
            steps.append((event, event.results.index(tensor)))
            tensor = event.source
        return tensor, steps[::-1]

    def root(self, tensor: TensorNumber) -> TensorNumber:
        """The tensor that owns the memory of `tensor`."""
        return self.path(tensor)[0]

    def is_viewed(self, tensor: TensorNumber) -> bool:
        """Whether the function took a view or detached alias of this very tensor."""
        return tensor in self._taken

    def views_in(self, tensor: TensorNumber) -> list[Viewed]:
        """The statements that took a view (not a detached alias) of this very tensor."""
        return [event for event in self._taken.get(tensor, ()) if not event.detaches]

    def views(self) -> Iterator[Viewed]:
        return (event for event in self.events if isinstance(event, Viewed))

    def metadata_ops(self, tensor: TensorNumber | None = None) -> Iterator[MetadataOp]:
        """Those on this very tensor, or on any."""
        events = self.events if tensor is None else self.changes_of.get(tensor, ())
        return (event for event in events if isinstance(event, MetadataOp))

    def changes(self) -> Iterator[tuple[int, MetadataOp | Wrote]]:
        """The events that write or move a tensor, with their positions."""
        return ((k, event) for k, event in enumerate(self.events) if isinstance(event, (MetadataOp, Wrote)))

    def writes(self) -> Iterator[tuple[int, Wrote]]:
        return ((k, event) for k, event in self.changes() if isinstance(event, Wrote))

    def writes_to(self, root: TensorNumber) -> Iterator[tuple[int, Wrote]]:
        """The writes to a tensor, or to a view of it, with their positions."""
        return ((k, event) for k, event in self.writes() if self.root(event.tensor) == root)

    def views_of_memory(self, tensor: TensorNumber, events: Iterable[Event]) -> Iterator[tuple[TensorNumber, Layout]]:
        """The views of a tensor's memory, each with its layout when it was taken."""
        for event in events:
            if isinstance(event, Viewed):
                pairs = zip(event.results, event.layouts, strict=True)
                yield from ((view, where) for view, where in pairs if self.root(view) == tensor)

    def hooked(self) -> list[TensorNumber]:
        """The tensors on which the wrapper registers hooks."""
        return [tensor for event in self.events if isinstance(event, Hooked) for tensor in event.tensors]

    def marks_of(self, tensor: TensorNumber) -> list[int]:
        """The positions of the events that set `requires_grad` of a tensor."""
        return [k for k, event in enumerate(self.events) if isinstance(event, Marked) and event.tensor == tensor]

    def replacements(self) -> list[tuple[int, TensorNumber]]:
        """(Position among the events, tensor) of each tensor that was given another storage."""
        return [(k, event.tensor) for k, event in self.changes() if event.sets_storage]

    def given_by(self, position: int) -> TensorNumber | None:
        """The tensor whose storage the `set_` at this position passes on, or None if the event is not such a `set_`."""
        event = self.events[position] if position < len(self.events) else None
        if not (isinstance(event, MetadataOp) and event.args and event.sets_storage):
            return None
        return event.args[0] if isinstance(event.args[0], TensorNumber) else None

    def counts_apart(self, alias: TensorNumber) -> bool:
        """Whether an alias has its own version counter: `.data` returned it, or a subclass took it."""
        return alias in self.read_data or alias in self.below
