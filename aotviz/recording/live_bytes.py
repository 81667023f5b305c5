"""Which memory is alive when, planned from the recorded forward and backward: before anything runs.

A graph that runs operator by operator holds a value from the node that makes it to the last node that reads it. A
storage lives as long as any value in it. So the recorded sizes, storages and users tell what is alive at each node,
and what holds it; some operators keep more (`oversized.py`). What an operator allocates for itself and frees again
cannot be known from a graph.

The caller holds the inputs and the results; a saved tensor lives until the last node of the backward that reads it; the
gradients belong to the caller at the end. The incoming gradients are counted until their last use.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from aotviz.recording import oversized, sizes, tables
from aotviz.recording.frozen import Frozen
from aotviz.recording.graph import ITEM, Graph
from aotviz.recording.listing import Node
from aotviz.recording.memory_facts import PRIMAL, primals, results, views
from aotviz.recording.schema import ValueRecord

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

KINDS = ("parameter", "buffer", "input", "constant", "saved", "output", "update", "tangent", "gradient", "intermediate")
"""What a storage is to the call; the first that fits. "constant" belongs to the graph, "saved" is kept from the forward
to the backward, "update" is what the wrapper copies into an input after the forward, "tangent" comes in with the
backward, "gradient" is returned by it."""

Key = tuple[int, int]  # of a storage: its number, and the moment from which what is recomputed has its own
OF_THE_CALLER = frozenset(("parameter", "buffer", "input", "constant"))
_CALLER, _GRAPH = "the caller", "the compiled program"
_WRAPPER, _SAVED = "the wrapper, which copies it into an input", "the saved tensors"


class Holder(Frozen, frozen=True):
    """A storage, from the moment at which it is made to the last that holds it. Moments count nodes of the forward,
    then of the backward."""

    name: str  # of the node that makes it
    kind: str
    nbytes: int
    source: str  # the user's line
    module: str
    made_at: int
    held_until: int
    held_by: str  # the last node that reads it, or who holds it then
    device: str = ""  # "cpu", "cuda:0"


class Held(NamedTuple):
    """A storage of a plan, and the node that makes it."""

    key: Key
    maker: Node
    holder: Holder
    until: float  # a half is between two moments


class Peak(NamedTuple):
    """The moment at which most bytes are alive."""

    at: int
    phase: str
    node: str
    nbytes: int
    source: str
    module: str


class Timeline:
    """Planned bytes over moments, each of which is a node that runs: the peak, who holds what, a table and a plot."""

    def __init__(
        self, name: str, moments: list[Moment], holders: list[Holder], lives: Sequence[Life], device: str = ""
    ) -> None:
        """`lives`: of each holder, in the same order. `device`: the only one whose memory counts; "" for all."""
        self.name = name
        self.device = device
        self.rows = moments
        """The moments, before they are a table."""
        self.all_holders = holders
        """Every storage, in the order in which they are made."""
        self._lives = lives

    def __repr__(self) -> str:
        peak = self.peak
        where = f"`{peak.node}` in the {peak.phase}" if peak.node else "no node"
        return f"<aotviz {type(self).__name__} of {self.name!r}: at most {sizes.told(peak.nbytes)}, at {where}>"

    @property
    def moments(self) -> pd.DataFrame:
        """One row per node, in the order in which they run.

        Columns: at (the moment's number), phase ("forward", "inference" or "backward"), node, target, source_line,
        module_path, made (bytes that the node allocates), alive (bytes while it runs: what it reads, what it makes, and
        all that is held for later), after (bytes when what it read last is freed), and the alive bytes by kind, a
        column for each of `KINDS`. A storage counts once, a view nothing.
        """
        return tables.table(_MOMENTS, self.rows)

    @property
    def peak(self) -> Peak:
        """The moment at which most bytes are alive; the first one, if there are several."""
        return self._most(self.rows)

    def peak_of(self, phase: str) -> Peak:
        """The moment of a phase ("forward", "inference" or "backward") at which most bytes are alive."""
        return self._most([moment for moment in self.rows if moment.phase == phase])

    def _most(self, moments: Sequence[Moment]) -> Peak:
        most = max(moments, key=lambda moment: moment.alive, default=None)
        if most is None:
            return Peak(0, "", "", 0, "", "")
        node = most.node
        return Peak(most.at, most.phase, node.name, most.alive, node.source.with_code, node.module_path)

    def holders(self, at: int | None = None) -> pd.DataFrame:
        """One row per storage that is alive at a moment, the largest first. None means the peak.

        Columns: name (the node that makes it), kind, nbytes, source, module, made_at and held_until (moments), held_by
        (the last node that reads it, or who holds it then), device.

        Raises IndexError if there is no such moment.
        """
        moment = moment_of(self.peak.at if at is None else at, self.rows, self.name)
        return tables.records(Holder, self._alive(moment))

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that the storages are on, the one with most bytes first."""
        total = Counter[str]()
        for one in self.all_holders:
            total[one.device] += one.nbytes
        return tuple(device for device, _ in total.most_common())

    @property
    def accelerator(self) -> str:
        """The device that is not the CPU, if tensors are on both: its peak counts. Otherwise ""."""
        others = [one for one in self.devices if one != "cpu"]
        return others[0] if len(others) == 1 and "cpu" in self.devices else ""

    def on(self, device: str) -> Timeline:
        """The same moments, with the memory of one device: "cuda:0", or "cuda" if there is one of that type.

        Raises LookupError if nothing is on that device.
        """
        known = [one for one in self.devices if one == device] or [
            one for one in self.devices if one.partition(":")[0] == device
        ]
        if len(known) != 1:
            raise LookupError(f"{len(known)} devices are {device!r}: memory is on {', '.join(self.devices) or 'none'}")
        ours = [(one, life) for one, life in zip(self.all_holders, self._lives, strict=True) if one.device == known[0]]
        lives, moments = [life for _, life in ours], []
        for (at, phase, node, *_), alive in zip(self.rows, alive_through(lives, len(self.rows)), strict=True):
            made = sum(one.nbytes for one in alive.fresh if one.kind not in OF_THE_CALLER and one.kind != "tangent")
            moments.append(Moment(at, phase, node, made, alive.nbytes, alive.after, alive.by_kind))
        return Timeline(f"{self.name} on {known[0]}", moments, [one for one, _ in ours], lives, known[0])

    @property
    def at_peak(self) -> list[Holder]:
        """The storages that are alive at the peak, the largest first."""
        return self._alive(self.peak.at)

    def _alive(self, moment: int) -> list[Holder]:
        largest_first = sorted(self.all_holders, key=lambda one: -one.nbytes)
        return [one for one in largest_first if one.made_at <= moment <= one.held_until]

    def plot(self) -> Figure:
        """The alive bytes over forward and backward, by kind, as a plotly figure."""
        from plotly.graph_objects import Figure, Scatter

        moments = self.rows
        hover = [f"{moment.phase}: {moment.node.name}<br>{moment.node.source.with_code}" for moment in moments]
        figure = Figure()
        for kind in KINDS:
            alive = [moment.by_kind.get(kind, 0) for moment in moments]
            if any(alive):
                figure.add_trace(
                    Scatter(
                        x=[moment.at for moment in moments], y=alive, name=kind, stackgroup="alive", mode="none",
                        customdata=hover, hovertemplate="%{customdata}<br>%{y:,} bytes<extra>%{fullData.name}</extra>",
                    )
                )  # fmt: skip
        begins = next((moment.at for moment in moments if moment.phase == "backward"), None)
        if begins:
            figure.add_vline(x=begins - 0.5, line_dash="dot", annotation_text="backward")
        peak = self.peak
        title = f"{self.name}: at most {sizes.told(peak.nbytes)}, at {peak.node} in the {peak.phase}"
        figure.update_layout(title=title, xaxis_title="node", yaxis_title="bytes alive", hovermode="x")
        return figure


class Memory(Timeline):
    """The planned memory of one compilation: a moment per node of the forward, then of the backward.

    >>> import torch
    >>> import aotviz
    >>> f = aotviz.compile(lambda x: x.exp().sin().sum(), backend="eager")
    >>> f(torch.ones(100, requires_grad=True)).backward()
    >>> memory = f.recording[0].memory()
    >>> memory  # doctest: +ELLIPSIS
    <aotviz Memory of '<lambda> [...]': at most 1.57 KiB, at `mul` in the backward>
    >>> memory.moments[["phase", "node", "alive", "after"]].values.tolist()[1]
    ['forward', 'sin', 1200, 1200]
    >>> memory.holders()[["name", "kind", "nbytes"]].values.tolist()[:2]
    [['x', 'input', 400], ['exp', 'saved', 400]]
    """

    def __init__(
        self,
        name: str,
        halves: Sequence[Graph],
        kinds: Mapping[str, str],
        symbols: Mapping[str, int],
        released: Set[str] = frozenset(),
        replaced: Set[str] = frozenset(),
    ) -> None:
        """`released`: names of holders, which the caller holds no longer than until the forward has run. `replaced`:
        inputs that get another storage, as by `set_`."""
        self.halves = halves
        self.symbols = symbols
        self._plan = _Plan(halves, kinds, symbols, released, replaced)
        super().__init__(name, self._plan.moments, self._plan.holders, [*self._plan.storages.values()])

    @property
    def saved_bytes(self) -> int:
        """Bytes that the forward keeps for the backward, beside what the caller holds."""
        return sum(one.nbytes for one in self._plan.holders if one.kind == "saved")

    def held(self) -> Iterator[Held]:
        """Every storage, in the order in which they are made."""
        for (key, one), holder in zip(self._plan.storages.items(), self._plan.holders, strict=True):
            yield Held(key, one.maker, holder, one.until)

    def storages_of(self, graph: Graph, node: Node) -> dict[Key, int]:
        """The storages that a node's value is in, as the call has them before the node runs: keys and bytes."""
        return {(storage, 0): nbytes for storage, nbytes, _ in self._plan.inside(graph, node)}

    def made_by(self, graph: Graph, node: Node) -> list[int]:
        """The bytes of each item that a node returns, 0 for one that is no tensor; of one item if it is no tuple."""
        value = node.value
        items = value.parts if value is not None and value.kind == "tuple" else [node.value_id]
        return [
            sum(nbytes for _, nbytes, _ in self._plan.inside(graph, node, [item])) if item >= 0 else 0 for item in items
        ]


class Moment(NamedTuple):
    """A node that runs, and the bytes that are alive."""

    at: int
    phase: str
    node: Node
    made: int
    alive: int
    after: int
    by_kind: dict[str, int]


def bytes_of(kind: str) -> tuple[str, Callable[[Any], int]]:
    """The column of a kind in a table of moments."""
    return "int64", lambda moment: moment.by_kind.get(kind, 0)


_MOMENTS: tables.Columns = {
    **tables.attributes(at="int64", phase="str"),
    "node": ("str", lambda moment: moment.node.name),
    "target": ("str", lambda moment: moment.node.target),
    "source_line": ("str", lambda moment: str(moment.node.source)),
    "module_path": ("str", lambda moment: moment.node.module_path),
    **tables.attributes(made="int64", alive="int64", after="int64"),
    **{kind: bytes_of(kind) for kind in KINDS},
}


@dataclass
class _Storage:
    """What is found out about a storage while the graphs are read."""

    maker: Node
    made_at: int
    kind: str
    nbytes: int = 0
    until: float = -1  # a half: between two moments
    by: str = ""
    device: str = ""


def _name(node: Node) -> str:
    return node.descriptor or node.name


class _Plan:
    """The moments and holders of one or two graphs that run one after the other."""

    def __init__(
        self,
        halves: Sequence[Graph],
        kinds: Mapping[str, str],
        symbols: Mapping[str, int],
        released: Set[str],
        replaced: Set[str],
    ) -> None:
        self._symbols, self._released, self._replaced = symbols, released, replaced
        self.storages: dict[Key, _Storage] = {}
        self._ends: dict[int, int] = {}  # of values: bytes up to the end in the storage
        self._largest: dict[int, int] = {}  # bytes by storage, if they are needed
        self._owners: dict[int, int] = {}  # of views, and of what is written in place: the value that has the storage
        self._given_in_order = primals(halves[0]) == len(kinds)  # the primals of a log are Dynamo's inputs
        steps: list[tuple[str, Node]] = []  # what runs, in order
        for graph, following in zip(halves, [*halves[1:], None], strict=True):
            self._read(graph, kinds, len(steps), following)
            steps += [(graph.role.split()[0], node) for node in graph.rows if node.op not in ("placeholder", "output")]
        for one in self.storages.values():
            if one.until == _END or (one.kind in OF_THE_CALLER and _name(one.maker) not in released):
                one.until, one.by = len(steps), _GRAPH if one.kind == "constant" else _CALLER
        self.holders = [
            Holder(_name(s.maker), s.kind, s.nbytes, s.maker.source.with_code, s.maker.module_path,
                   s.made_at, int(s.until), s.by, s.device)
            for s in self.storages.values()
        ]  # fmt: skip
        self.moments = self._moments(steps)

    def _read(self, graph: Graph, kinds: Mapping[str, str], begins: int, following: Graph | None) -> None:
        """Add a graph's storages, and until when its nodes hold them."""
        at, moment = {}, begins
        for node in graph.rows:
            at[node.index] = moment
            moment += node.op not in ("placeholder", "output")
        for view, owner in views(graph):
            self._owners[view] = self._owners.get(owner, owner)
        returned, updates, saved = results(graph, following, self._replaced)
        rows = graph.rows
        within: list[set[Key]] = []  # the storages that each node's value is in
        for node in rows:
            users = graph.users[node.index]
            users = users[:-1] if users and rows[users[-1]].op == "output" else users
            last = rows[users[-1]] if users else node
            within.append(set())
            for storage, nbytes, device in self.inside(graph, node):
                # What is recomputed has the forward's number, also where a view of the forward's value is saved.
                key = storage, 0
                if begins and node.op != "placeholder" and not any(key in within[i] for i in node.inputs):
                    key = storage, begins
                within[-1].add(key)
                known = self.storages.get(key)
                if known is None:
                    known = self.storages[key] = _Storage(
                        node, at[node.index], self._kind(graph, node, kinds), device=graph.text(device)
                    )
                known.nbytes = max(known.nbytes, nbytes)
                held = known.kind in OF_THE_CALLER or node.index in returned
                if held and not begins and _name(known.maker) in self._released:
                    known.until, known.by = max(known.until, moment - 0.5), _CALLER
                elif node.index in returned:
                    known.until = _END
                if node.index in returned:
                    if known.kind == "intermediate":
                        known.kind = "gradient" if graph.role.startswith("backward") else "output"
                elif node.index in updates:
                    known.until, known.by = moment - 0.5, _WRAPPER  # before anything else runs
                    if known.kind == "intermediate":
                        known.kind = "update"
                if node.index in saved and known.until != _END:
                    known.until, known.by = moment - 0.5, _SAVED
                    if known.kind in ("intermediate", "update"):
                        known.kind = "saved"
                if (users or node.op != "placeholder") and _END != known.until <= at[last.index]:
                    known.until, known.by = at[last.index], last.name

    def inside(self, graph: Graph, node: Node, of: Sequence[int] = ()) -> Iterable[tuple[int, int, int]]:
        """The storage, the bytes up to its end and the number of the device's text, of each tensor that a node's value
        is or has, or of these."""
        if node.op == "output":
            return ()
        has_rule, value = oversized.has_rule(node.target), node.value
        if value is None or value.kind != "tensor" or value.parts or of or has_rule:
            return self._tensors(graph, node, of, has_rule)
        return (self._tensor(graph, node.value_id),)

    def _tensors(self, graph: Graph, node: Node, of: Sequence[int], has_rule: bool) -> Iterator[tuple[int, int, int]]:
        whole: Sequence[int] = of or [node.value_id]
        if node.value_id < 0:  # a log does not say what a tuple has: its items do
            users = (graph.rows[user] for user in graph.users[node.index])
            whole = [user.value_id for user in users if user.target == ITEM]
        if missing := oversized.not_made(node.target, node.args) if has_rule and not of else ():
            parts = node.value.parts if node.value is not None else []
            whole = [part for i, part in enumerate(parts) if i not in missing]
        for number in sizes.tensors([number for number in whole if number >= 0], graph.values):
            storage, nbytes, device = self._tensor(graph, number)
            if has_rule and oversized.keeps_more(node.target):
                nbytes = max(nbytes, self._kept(graph, node, number))
            yield storage, nbytes, device
        if has_rule and not of and oversized.makes_a_weight(node.target, node.args) and len(node.inputs) > 2:
            weight = graph.rows[node.inputs[2]].value
            if weight is not None and graph.text(weight.device) == "cpu":
                nbytes = self._end(weight) * sizes.element_bytes(graph.text(weight.dtype))
                yield ~(_UNNAMED + node.index), nbytes, weight.device

    def _tensor(self, graph: Graph, number: int) -> tuple[int, int, int]:
        """The storage of a tensor, the bytes up to its end, and the number of the device's text."""
        value = graph.values[number]
        nbytes = self._ends.get(number)
        if nbytes is None:
            nbytes = self._ends[number] = self._end(value) * sizes.element_bytes(graph.text(value.dtype))
        # a log does not say storages; and a partitioner may insert a copy below a view that was traced
        owner = self._owners.get(number, number)
        storage = graph.values[owner].storage if value.storage >= 0 <= owner else -1
        return storage if storage >= 0 else ~owner, nbytes, value.device

    def _end(self, value: ValueRecord) -> int:
        """Elements from the beginning of a storage to the end of the tensor."""
        end = sizes.reach(value.offset, value.shape, value.stride)
        if end is None:
            shape, stride = map(self._known, value.shape), map(self._known, value.stride)
            end = sizes.reach(self._known(value.offset), [*shape], [*stride]) or 0
        return end

    def _storage_bytes(self, graph: Graph, storage: int) -> int:
        """The bytes of the storage of a value that is not the first in it."""
        if not self._largest:
            for value in graph.values:
                if value.kind == "tensor" and value.storage >= 0:
                    nbytes = self._end(value) * sizes.element_bytes(graph.text(value.dtype))
                    self._largest[value.storage] = max(self._largest.get(value.storage, 0), nbytes)
        return self._largest.get(storage, 0)

    def _kept(self, graph: Graph, node: Node, number: int) -> int:
        """The bytes that an operator's result keeps at least (oversized.py)."""
        value, read = graph.values[number], [one.value for i in node.inputs if (one := graph.rows[i]).value]
        if read and read[0] and oversized.copies_a_storage(node.target):
            return self._storage_bytes(graph, read[0].storage)
        if graph.text(value.device) != "cpu" or not read:
            return 0
        if oversized.has_statistics_of_weights(node.target):
            is_statistic = node.value is not None and number in node.value.parts[1:]
            dtype = read[1].dtype if is_statistic and len(read) > 1 and read[1] else value.dtype
            return self._end(value) * sizes.element_bytes(graph.text(dtype))
        shapes = [[self._known(size) for size in one.shape] for one in read[:2] if one]
        return oversized.kept_elements(node.target, shapes) * sizes.element_bytes(graph.text(value.dtype))

    def _known(self, size: int | str) -> int:
        return sizes.evaluated(size, self._symbols)

    def _kind(self, graph: Graph, node: Node, kinds: Mapping[str, str]) -> str:
        if node.op == "get_attr":
            return "constant"
        if node.op != "placeholder":
            return "intermediate"
        if graph.role.startswith("backward") and self.storages:
            return "tangent"
        said = _OF_TORCH.match(node.descriptor)  # in a log: the number of an input, or a name
        names = [*kinds]
        primal = PRIMAL.fullmatch(node.name) if not node.descriptor else None  # or nothing
        if primal is not None and self._given_in_order:
            return kinds[names[int(primal["number"]) - 1]]
        if said is None:
            return kinds.get(node.descriptor, "input")
        number = int(said["number"] or len(names))
        return kinds.get(names[number] if number < len(names) else said["name"] or "", "input")

    def _moments(self, steps: Sequence[tuple[str, Node]]) -> list[Moment]:
        moments = []
        for at, alive in enumerate(alive_through(self.storages.values(), len(steps))):
            phase, node = steps[at]
            made = sum(one.nbytes for one in alive.fresh if one.maker is node)
            moments.append(Moment(at, phase, node, made, alive.nbytes, alive.after, alive.by_kind))
        return moments


class Life(Protocol):
    """What is alive from one moment to another; a half is between two moments."""

    @property
    def kind(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def made_at(self) -> int: ...
    @property
    def until(self) -> float: ...


L = TypeVar("L", bound=Life)


class Alive(NamedTuple, Generic[L]):
    """What is alive at a moment."""

    fresh: list[L]  # what begins then
    by_kind: dict[str, int]  # bytes
    nbytes: int
    after: int  # the bytes that are left then


def alive_through(lives: Iterable[L], moments: int) -> Iterator[Alive[L]]:
    begin, end = defaultdict[int, list[L]](list), defaultdict[float, list[L]](list)
    for one in lives:
        begin[one.made_at].append(one)
        end[one.until].append(one)
    by_kind = Counter[str]()
    for at in range(moments):
        for one in end[at - 0.5]:
            by_kind[one.kind] -= one.nbytes
        for one in begin[at]:
            by_kind[one.kind] += one.nbytes
        during = dict(by_kind)
        for one in end[at]:
            by_kind[one.kind] -= one.nbytes
        yield Alive(begin[at], during, sum(during.values()), by_kind.total())


def moment_of(at: int, moments: Sequence[Any], name: str) -> int:
    """`at`, if it is the number of one of the moments of `name`. Raises IndexError if it is not."""
    if not 0 <= at < max(len(moments), 1):
        raise IndexError(f"there is no moment {at}: the moments of {name} are 0 to {len(moments) - 1}")
    return at


def beside_given(moment: Any) -> int:
    """The bytes alive at a moment, beside those that the compiled function gets."""
    return int(moment.alive) - given_bytes(moment)


def given_bytes(moment: Any) -> int:
    """The bytes alive at a moment of inputs, parameters, buffers, constants and incoming gradients."""
    return sum(moment.by_kind.get(kind, 0) for kind in (*OF_THE_CALLER, "tangent"))


_UNNAMED = 1 << 50  # the first number of storages that are in no graph
_END = 1 << 60  # held by the caller when everything has run

_OF_TORCH = re.compile(r"\w+AOTInput\((?:idx=(?P<number>\d{1,9})|target='(?P<name>[^']*)')\)")
