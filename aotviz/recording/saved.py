"""What the forward keeps for the backward, and what the backward computes again: noted briefly while the program is
compiled, and worked out from the recorded graphs when someone reads it.

Most of what the tables say (sizes, readers, whose memory, where in the program) is in the snapshots of the two halves
already; to write it down once more at each stage was a tenth of what recording cost. Free of torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from aotviz.recording.events import NONE, GraphSnapshot, RecomputedRecord, SavedTensorRecord, ValueRecord
from aotviz.recording.sizes import element_bytes, storage_bytes
from aotviz.recording.sources import innermost, module_path
from aotviz.recording.strings import clean

_INPUT = re.compile(r"primals_\d+")  # an input of the forward by its name, where no record says whose memory it is


class SavedNote(NamedTuple):
    """One value kept, as SavedTensorRecord has it, and what leads to the rest."""

    name: str
    is_symbol: bool
    value: int  # index into CompilationData.values
    producer: str
    stack: int  # string
    module: str  # as torch spells it
    why: str
    version_checked: bool
    donated: bool
    why_donated: str
    hook: str


class Kept(NamedTuple):
    """What is noted of a joint graph cut in two."""

    forward: int  # index into CompilationData.graphs
    backward: int
    saved: list[SavedNote]
    recomputed: list[int]  # positions in the backward graph


class Storage(NamedTuple):
    """A piece of memory that is kept for the backward, however many of the values that are kept lie in it."""

    nbytes: int | None  # None where a size is symbolic
    holder: str  # the value that it is counted to: the largest, and of these the first
    until: int  # position in the backward of the last node that reads any value in it, -1 if there is none


class Halves:
    """The halves of a joint graph as they were recorded, with the tables that they refer to."""

    def __init__(
        self, kept: Kept, graphs: Sequence[GraphSnapshot], values: Sequence[ValueRecord], texts: Sequence[str]
    ) -> None:
        self.kept, self.values, self.texts = kept, values, texts
        self.forward, self.backward = graphs[kept.forward], graphs[kept.backward]
        self.readers = readers(self.backward)
        self._first: dict[int, int] = {}  # storage group -> the node of the backward that is the first to lie there
        for position, number in enumerate(self.backward.value):
            if number != NONE and values[number].storage != NONE:
                self._first.setdefault(values[number].storage, position)

    def saved_tensors(self) -> list[SavedTensorRecord]:
        """One record a value that the forward keeps, in order."""
        memory, storages = dict(reversed([*self._given_memory()])), self._storages()  # of two inputs, the first
        inputs = {self.texts[self.backward.name[i]]: i for i, op in enumerate(self.backward.op) if op == "p"}
        return [self._saved(note, memory, storages, inputs.get(note.name)) for note in self.kept.saved]

    def recomputed(self) -> list[RecomputedRecord]:
        """One record a node of the forward that the partitioner put into the backward as well, in order."""
        return list(map(self._recomputed, self.kept.recomputed))

    def _saved(
        self, note: SavedNote, memory: dict[int, str], storages: dict[int, Storage], position: int | None
    ) -> SavedTensorRecord:
        value = self.values[note.value]
        tensor, read, owner = self._tensor(value), self._read(position), memory.get(value.storage, "")
        free = costs_nothing(note.name, owner)
        storage = storages.get(value.storage) or Storage(tensor["nbytes"], note.name, read["dies_at"])
        shares = not free and storage.holder != note.name
        return SavedTensorRecord(
            name=note.name,
            kind="symint" if note.is_symbol else "tensor",
            producer=clean(note.producer),
            source=self._source(note.stack),
            module=clean(module_path(note.module)),
            why=clean(note.why),
            version_checked=note.version_checked,
            donated=note.donated,
            why_donated=clean(note.why_donated),
            hook=clean(note.hook),
            memory_of=owner,
            shares_with=storage.holder if shares else "",
            held_bytes=0 if free or shares else storage.nbytes,
            held_until=storage.until,
            **tensor,
            **read,
        )

    def _storages(self) -> dict[int, Storage]:
        """The pieces of memory that the values lie in, by storage group."""
        within: dict[int, list[SavedNote]] = {}
        for note in self.kept.saved:
            if (group := self.values[note.value].storage) != NONE:
                within.setdefault(group, []).append(note)
        until = dict.fromkeys(within, NONE)
        for position, number in enumerate(self.backward.value):
            if number != NONE and (group := self.values[number].storage) in until and self.readers[position]:
                until[group] = max(until[group], self.readers[position][-1])
        sizes = storage_bytes(self.forward, [note.value for note in self.kept.saved], self.values, self.texts)
        return {
            group: Storage(sizes[group], max(notes, key=self._nbytes).name, until[group])
            for group, notes in within.items()
        }

    def _nbytes(self, note: SavedNote) -> int:
        return self._tensor(self.values[note.value])["nbytes"] or 0

    def _recomputed(self, position: int) -> RecomputedRecord:
        graph, number = self.backward, self.backward.value[position]
        lines = self._text(graph.module[position]).rpartition("\n")[2]
        value = self.values[number] if number != NONE else None
        tensor = self._tensor(value)
        if value is not None and self._first.get(value.storage, position) != position:
            tensor["nbytes"] = 0  # a view
        return RecomputedRecord(
            name=self.texts[graph.name[position]],
            producer=self.texts[graph.target[position]],
            source=self._source(graph.stack[position]),
            module=lines.rpartition("|")[0],
            made_at=position,
            **tensor,
            **self._read(position),
        )

    def _given_memory(self) -> Iterator[tuple[int, str]]:
        """The storage groups of the forward's inputs, and whose each is."""
        graph = self.forward
        for position, (op, number) in enumerate(zip(graph.op, graph.value, strict=True)):
            if op == "p" and number != NONE and self.values[number].storage != NONE:
                yield self.values[number].storage, self.texts[graph.descriptor.get(position, graph.name[position])]

    def _tensor(self, value: ValueRecord | None) -> dict[str, Any]:
        """`dtype`, `shape` and `nbytes` as records have them."""
        if value is None or value.kind != "tensor":
            return {"dtype": "", "shape": [], "nbytes": 0}
        dtype, known = self.texts[value.dtype], [size for size in value.shape if isinstance(size, int)]
        nbytes = math.prod(known) * element_bytes(dtype) if len(known) == len(value.shape) else None
        return {"dtype": dtype, "shape": value.shape, "nbytes": nbytes}

    def _read(self, position: int | None) -> dict[str, Any]:
        """`consumers` and `dies_at` as records have them."""
        found = [] if position is None else self.readers[position]
        names = self.backward.name
        return {"consumers": [self.texts[names[i]] for i in found], "dies_at": found[-1] if found else NONE}

    def _source(self, stack: int) -> str:
        source = innermost(self._text(stack))
        return f"{source} {source.code}".strip()

    def _text(self, number: int) -> str:
        return self.texts[number] if number != NONE else ""


def costs_nothing(name: str, memory_of: str) -> bool:
    """Whether a value that is kept lies in memory that the caller holds anyway: an input, or a view of one.

    >>> costs_nothing("view_3", "weight"), costs_nothing("primals_2", ""), costs_nothing("mm", "")
    (True, True, False)
    """
    return memory_of != "" or _INPUT.fullmatch(name) is not None


def cost(record: SavedTensorRecord) -> int | None:
    """Bytes of memory that are kept because this value is, None where a size is symbolic: of its whole storage, for one
    of the values that lie there. Where storages are not known, as in a log of torch's, each value counts for itself.

    >>> from msgspec.structs import replace
    >>> alone = SavedTensorRecord("mm", "tensor", "torch.float32", [4], 16, "aten.mm", "", "", "", False, False, "")
    >>> shared = replace(alone, name="view", shares_with="mm", held_bytes=0)
    >>> cost(alone), cost(shared), cost(replace(alone, name="primals_1"))
    (16, 0, 0)
    """
    if record.held_bytes != NONE:
        return record.held_bytes
    return 0 if costs_nothing(record.name, record.memory_of) else record.nbytes


def readers(graph: GraphSnapshot) -> list[list[int]]:
    """For each node, the positions of those that read it, in order; the output is none of them.

    >>> readers(GraphSnapshot("pffo", [], [], [[], [[1], 2], [["L", [1], [2]]], [[1]]], {}, [], [], [], [], "", {}, []))
    [[1, 2], [2], [], []]
    """
    found: list[list[int]] = [[] for _ in graph.op]
    for position, op in enumerate(graph.op):
        if op != "o":
            named = graph.kwargs.get(position, {}).values()
            for distance in dict.fromkeys(distances([*graph.args[position], *named])):
                found[position - distance].append(position)
    return found


def distances(parts: list[Any]) -> Iterator[int]:
    """How many places before a node those stand that are among its arguments (see GraphSnapshot)."""
    for part in parts:
        if isinstance(part, list) and part:
            if part[0] == "L":
                yield from distances(part[1:])
            else:
                yield part[0]
        elif isinstance(part, dict) and "r" not in part:
            for inside in part.values():  # {"d": {...}} or {"s": [...]}
                yield from distances([*inside.values()] if isinstance(inside, dict) else inside)
