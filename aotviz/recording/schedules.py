"""Other schedules of a recorded program: another order of its nodes, or other values saved between its two halves.

A schedule names the nodes that each half runs, and what is saved. A node of the forward that is named in the backward
runs there again. So the plan of a schedule is read from the recorded graphs with their nodes listed otherwise, and the
program with that schedule is made from torch's graphs in the same way (`frontends/scheduled.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from msgspec.structs import replace

from aotviz.recording import sizes
from aotviz.recording.graph import ITEM, Graph
from aotviz.recording.listing import Node
from aotviz.recording.memory_facts import saved_place
from aotviz.recording.schema import ValueRecord

_RANDOM = re.compile(
    r"(?:aten|prims|rngprims)\.(?:\w*dropout\w*|\w*bernoulli\w*|rand\w*|normal\w*|multinomial|poisson|binomial|rrelu\w*"
    r"|\w*philox\w*|inductor_\w*|_scaled_dot_product_\w*|empty\w*|\w*sample\w*)\.\w+"
)
_PURE = re.compile(r"(?:aten|prims)\.\w+\.\w+|operator\.\w+")
_IN_PLACE = re.compile(r"[^_]_\.\w+$|\.out$")
_ROUNDS = 4  # a value that a clone needs may be one that was to be dropped


class Schedule(NamedTuple):
    """What each half runs, by the names of nodes. Inputs are not named; of the saved values, all are."""

    forward: tuple[str, ...]
    saved: tuple[str, ...]
    backward: tuple[str, ...]


class Relisted(Graph):
    """A recorded graph whose nodes are listed otherwise. It has no snapshot of its own."""

    def __init__(
        self,
        graph: Graph,
        rows: Sequence[Node],
        outputs: Sequence[str],
        described: Sequence[str],
        values: Sequence[ValueRecord] | None = None,
    ) -> None:
        super().__init__(graph.snapshot, values or graph.values, graph.strings, graph.role, graph.stage)
        vars(self).update(rows=tuple(rows), outputs=tuple(outputs))
        self._described = tuple(described)

    @property
    def output_descriptors(self) -> tuple[str, ...]:
        return self._described


def runs(node: Node) -> bool:
    return node.op not in ("placeholder", "output")


def schedule_of(forward: Graph, backward: Graph) -> Schedule:
    """The recorded schedule."""
    names = [tuple(node.name for node in half.rows if runs(node)) for half in (forward, backward)]
    return Schedule(names[0], forward.outputs[saved_place(forward, backward) :], names[1])


def scheduled(forward: Graph, backward: Graph, schedule: Schedule) -> list[Graph]:
    """The halves with another schedule."""
    own = {node.name: node for node in backward.rows if runs(node)}
    given = {node.name: node for node in backward.rows if node.op == "placeholder"}
    before = set(schedule_of(forward, backward).saved)
    place, described = saved_place(forward, backward), forward.output_descriptors
    said_saved = [f"saved {name}" if any(described) else "" for name in schedule.saved]
    nodes = [node for node in forward.rows if node.op == "placeholder"]
    nodes += [forward.by_name[name] for name in schedule.forward]
    outputs = [*forward.outputs[:place], *schedule.saved]
    half = relisted(forward, nodes, outputs, [*described[:place], *said_saved])
    saved = [given.get(name) or replace(forward.by_name[name], op="placeholder", inputs=()) for name in schedule.saved]
    others = [node for name, node in given.items() if name not in before]
    nodes = [*saved, *others, *(own.get(name) or forward.by_name[name] for name in schedule.backward)]
    return [half, relisted(backward, nodes, backward.outputs, backward.output_descriptors, _names(forward))]


def _names(graph: Graph) -> dict[int, tuple[str, ...]]:
    """What each node reads, by name; the key is the node's identity, since nodes of two graphs are listed together."""
    return {id(node): tuple(graph.rows[i].name for i in node.inputs) for node in graph.rows}


def relisted(
    graph: Graph,
    nodes: Sequence[Node],
    outputs: Sequence[str],
    described: Sequence[str],
    others: Mapping[int, tuple[str, ...]] | None = None,
) -> Relisted:
    """A graph with these nodes, inputs first. `others` is what those of them read that are of another graph."""
    read = {**(others or {}), **_names(graph)}
    numbers = {node.name: number for number, node in enumerate(nodes)}
    rows = [
        replace(node, index=number, inputs=tuple(numbers[name] for name in read.get(id(node), ())))
        for number, node in enumerate(nodes)
    ]
    last = graph.rows[-1]
    if last.op == "output":
        returned = tuple(dict.fromkeys(numbers[name] for name in outputs if name in numbers))
        rows.append(replace(last, index=len(rows), inputs=returned))
    return Relisted(graph, rows, outputs, described)


def can_repeat(node: Node) -> bool:
    """Whether a node computes the same when it runs again, or at another time."""
    return (
        bool(_PURE.fullmatch(node.target)) and not _RANDOM.fullmatch(node.target) and not _IN_PLACE.search(node.target)
    )


def recomputing(
    forward: Graph,
    backward: Graph,
    dropped: Collection[str],
    written: Set[str],
    reaches: Callable[[Node, Node], bool],
) -> Schedule | None:
    """The schedule that does not save some values, but computes them again just before they are read first.

    What they are computed from is saved, or computed again as well, as far as `reaches(node, what it reads)`. None if
    that reads an input that is written by the call (`written`).
    """
    recorded, left = schedule_of(forward, backward), set(dropped)
    for _ in range(_ROUNDS):
        kept = [name for name in recorded.saved if name not in left]
        again = _Again(forward, left, set(kept), written, reaches)
        if not again.fill(backward):
            return None
        if left.isdisjoint(again.saved):
            return Schedule(recorded.forward, (*kept, *again.saved), tuple(again.ran))
        left -= set(again.saved)
    return None


class _Again:
    """The nodes of a backward that runs some of the forward's again."""

    def __init__(
        self,
        forward: Graph,
        dropped: Set[str],
        kept: Set[str],
        written: Set[str],
        reaches: Callable[[Node, Node], bool],
    ) -> None:
        self._forward, self._reaches, self._written = forward, reaches, written
        self._dropped, self._known = dropped, set(kept)
        self.saved: dict[str, None] = {}  # besides what is kept
        self.ran: list[str] = []

    def fill(self, backward: Graph) -> bool:
        for node in backward.rows:
            if node.op == "placeholder":
                continue
            for i in node.inputs:
                name = backward.rows[i].name
                if name in self._dropped and backward.rows[i].op == "placeholder" and not self._run(name):
                    return False
            if node.op != "output" and node.name not in self._known:  # a node that is recomputed has its first name
                self._known.add(node.name)
                self.ran.append(node.name)
        return True

    def _run(self, name: str) -> bool:
        """Run a node of the forward, and what it needs, unless that was done."""
        waiting = [(self._forward.by_name[name], False)]
        while waiting:
            node, is_ready = waiting.pop()
            if node.name in self._known:
                continue
            if is_ready:
                self._known.add(node.name)
                self.ran.append(node.name)
                continue
            waiting.append((node, True))
            for i in reversed(node.inputs):
                needed = self._forward.rows[i]
                if needed.name in self._known:
                    continue
                if needed.op == "placeholder" and needed.name in self._written:
                    return False
                if needed.op == "placeholder" or not self._may_run(node, needed):
                    self._known.add(needed.name)
                    self.saved[needed.name] = None
                else:
                    waiting.append((needed, False))
        return True

    def _may_run(self, node: Node, needed: Node) -> bool:
        maker = self._forward.maker(needed)
        if node.target == ITEM and needed is maker:
            return True  # that was asked for the item
        return runs(maker) and maker.op != "get_attr" and can_repeat(maker) and self._reaches(node, needed)


def reordered(graph: Graph, keeps: Callable[[Node], int]) -> Iterator[tuple[str, ...]]:
    """Other orders of a half's nodes, which hold less: `keeps` says how many bytes a node's own storage has.

    What cannot be repeated stays in its order.
    """
    nodes = [node for node in graph.rows if runs(node)]
    order = _Order(graph, nodes, keeps)
    yield order.early()
    yield order.late()
    yield order.greedy()


class _Order:
    def __init__(self, graph: Graph, nodes: Sequence[Node], keeps: Callable[[Node], int]) -> None:
        own = {node.index for node in nodes}
        self._nodes = {node.index: node for node in nodes}
        self._needs: dict[int, set[int]] = {node.index: {i for i in node.inputs if i in own} for node in nodes}
        before: list[int] = []  # since the last that has effects, and that one
        drawn: list[int] = []  # the last that drew
        effect = -1
        for node in nodes:  # what has effects waits for all that is before it; what draws, for what drew before
            needs = self._needs[node.index]
            if _IN_PLACE.search(node.target) or not (_PURE.fullmatch(node.target) or node.op == "get_attr"):
                needs |= set(before)
                before, effect = [], node.index
            else:
                if effect >= 0:
                    needs.add(effect)
                if _RANDOM.fullmatch(node.target):
                    needs |= set(drawn)
                    drawn = [node.index]
            before.append(node.index)
        self._users: dict[int, set[int]] = {i: set() for i in own}
        for i, needed in self._needs.items():
            for one in needed:
                self._users[one].add(i)
        self._storages = storages_of(graph)
        self._readers = defaultdict[int, set[int]](set)  # of each storage, the nodes that still read it
        self._makers: dict[int, int] = {}
        for row in graph.rows:
            for storage in self._storages[row.index]:
                self._makers.setdefault(storage, row.index)
            for i in (*row.inputs, row.index) if row.op != "placeholder" else ():
                for storage in self._storages[i]:
                    self._readers[storage].add(row.index)
        self._bytes = {s: keeps(graph.rows[maker]) for s, maker in self._makers.items()}
        self._freeable = {s for s, maker in self._makers.items() if graph.rows[maker].op != "get_attr"}

    def _adds(self, index: int, readers: Mapping[int, set[int]]) -> int:
        """The bytes that are alive after a node and were not before it."""
        node, total = self._nodes[index], 0
        mine = set(self._storages[index])
        for storage in mine:
            total += self._bytes[storage] if self._makers[storage] == index else 0
        for storage in mine.union(*(self._storages[i] for i in node.inputs)):
            if storage in self._freeable and readers.get(storage, set()) <= {index}:
                total -= self._bytes[storage]
        return total

    def greedy(self) -> tuple[str, ...]:
        """Of the nodes that can run, the one that adds least is next."""
        waits = {i: len(needed) for i, needed in self._needs.items()}
        readers = {storage: set(found) for storage, found in self._readers.items()}
        ready = [(self._adds(i, readers), i) for i, count in waits.items() if not count]
        heapify(ready)
        found: dict[int, None] = {}
        while ready:
            _, chosen = heappop(ready)
            if chosen in found:
                continue
            found[chosen] = None
            adds_less = set[int]()  # what is now the last to read a storage
            for i in (*self._nodes[chosen].inputs, chosen):
                for storage in self._storages[i]:
                    readers[storage].discard(chosen)
                    if len(readers[storage]) == 1:
                        adds_less |= readers[storage]
            for user in self._users[chosen]:
                waits[user] -= 1
                if not waits[user]:
                    adds_less.add(user)
            for i in adds_less:  # of two entries of a node, the newer one is lower and comes first
                if waits.get(i) == 0:  # the output waits for nothing, and does not run
                    heappush(ready, (self._adds(i, readers), i))
        return tuple(self._nodes[i].name for i in found)

    def early(self) -> tuple[str, ...]:
        """Each node at its place, but what frees memory as soon as what it needs has run."""
        readers = {storage: set(found) for storage, found in self._readers.items()}
        waits = {i: len(needed) for i, needed in self._needs.items()}
        found: dict[int, None] = {}
        for first in self._nodes:
            stack = [first]
            while stack:
                i = stack.pop()
                if i in found:
                    continue
                found[i] = None
                for source in (*self._nodes[i].inputs, i):
                    for storage in self._storages[source]:
                        readers[storage].discard(i)
                ready = []
                for user in self._users[i]:
                    waits[user] -= 1
                    if not waits[user] and self._adds(user, readers) < 0:
                        ready.append(user)
                stack += sorted(ready, reverse=True)
        return tuple(self._nodes[i].name for i in found)

    def late(self) -> tuple[str, ...]:
        """What makes more than it frees, just before its first reader."""

        def waits(i: int) -> bool:
            return self._adds(i, self._readers) > 0 and bool(self._users[i]) and can_repeat(self._nodes[i])

        found: dict[int, None] = {}
        for first in sorted(self._nodes, key=waits):  # those that wait come last
            stack = [(first, False)]
            while stack:
                i, is_ready = stack.pop()
                if i in found:
                    continue
                if is_ready:
                    found[i] = None
                    continue
                stack.append((i, True))
                stack += [(needed, False) for needed in sorted(self._needs[i], reverse=True)]
        return tuple(self._nodes[i].name for i in found)


def storages_of(graph: Graph) -> list[tuple[int, ...]]:
    """For each node, the storages that its value is in: numbers of the recording, or of its own where it has none."""
    found: list[tuple[int, ...]] = []
    for node in graph.rows:
        numbers = sizes.tensors([node.value_id] if node.value_id >= 0 else [], graph.values)
        mine = {graph.values[number].storage for number in numbers}
        found.append(tuple(s for s in mine if s >= 0))
    return found
