"""What the forward saves for the backward, and what the backward recomputes: short notes are taken during compilation,
and the tables are computed from the notes and the recorded graphs when they are read.

Most facts in the tables (sizes, consumers, who owns the memory, source lines) are already in the snapshots of the
forward and the backward. Recording them again at each stage was a tenth of the cost of recording. This module does not
import torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from aotviz.recording.node_arguments import NODE, references
from aotviz.recording.schema import NONE, GraphSnapshot, RecomputedRecord, SavedTensorRecord, ValueRecord
from aotviz.recording.sizes import storage_bytes, value_bytes
from aotviz.recording.sources import innermost, module_path
from aotviz.recording.strings import clean

_INPUT = re.compile(r"primals_\d+")  # the name of a forward input, for records that lack `memory_of`


class SavedNote(NamedTuple):
    """One saved value: fields of its SavedTensorRecord, and the indices from which the other fields are computed."""

    name: str
    is_symbol: bool
    value: int  # index into CompilationData.values
    producer: str
    stack: int  # text number
    module: str  # as torch spells it
    why: str
    version_checked: bool
    donated: bool
    why_donated: str
    hook: str


class Kept(NamedTuple):
    """The notes about one partition of a joint graph."""

    forward: int  # index into CompilationData.graphs
    backward: int
    saved: list[SavedNote]
    recomputed: list[int]  # positions in the backward graph


class Storage(NamedTuple):
    """A storage that stays allocated for the backward. One or several saved values are in it."""

    nbytes: int | None  # None if a size is symbolic
    holder: str  # the saved value that the storage is counted for: the largest, or the first of the largest
    until: int  # position in the backward of the last node that reads any value in it; -1 if no node does


class Halves:
    """The recorded forward and backward of a joint graph, with the values and texts that they refer to."""

    def __init__(
        self, kept: Kept, graphs: Sequence[GraphSnapshot], values: Sequence[ValueRecord], texts: Sequence[str]
    ) -> None:
        self.kept, self.values, self.texts = kept, values, texts
        self.forward, self.backward = graphs[kept.forward], graphs[kept.backward]
        self.readers = readers(self.backward)
        self._first: dict[int, int] = {}  # storage group -> position of its first node in the backward
        for position, number in enumerate(self.backward.value):
            if number != NONE and values[number].storage != NONE:
                self._first.setdefault(values[number].storage, position)

    def saved_tensors(self) -> list[SavedTensorRecord]:
        """One record per value that the forward saves, in order."""
        memory, storages = dict(reversed([*self._given_memory()])), self._storages()  # the first input of a group wins
        inputs = {self.texts[self.backward.name[i]]: i for i, op in enumerate(self.backward.op) if op == "p"}
        return [self._saved(note, memory, storages, inputs.get(note.name)) for note in self.kept.saved]

    def recomputed(self) -> list[RecomputedRecord]:
        """One record per forward node that the partitioner also put into the backward, in order."""
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
        """The storages of the saved values, by storage group."""
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
        """(storage group, descriptor or name of the input) of each input of the forward."""
        graph = self.forward
        for position, (op, number) in enumerate(zip(graph.op, graph.value, strict=True)):
            if op == "p" and number != NONE and self.values[number].storage != NONE:
                yield self.values[number].storage, self.texts[graph.descriptor.get(position, graph.name[position])]

    def _tensor(self, value: ValueRecord | None) -> dict[str, Any]:
        """The fields `dtype`, `shape` and `nbytes` of a record."""
        if value is None or value.kind != "tensor":
            return {"dtype": "", "shape": [], "nbytes": 0}
        dtype = self.texts[value.dtype]
        return {"dtype": dtype, "shape": value.shape, "nbytes": value_bytes(value, dtype)}

    def _read(self, position: int | None) -> dict[str, Any]:
        """The fields `consumers` and `dies_at` of a record."""
        found = [] if position is None else self.readers[position]
        names = self.backward.name
        return {"consumers": [self.texts[names[i]] for i in found], "dies_at": found[-1] if found else NONE}

    def _source(self, stack: int) -> str:
        return innermost(self._text(stack)).with_code

    def _text(self, number: int) -> str:
        return self.texts[number] if number != NONE else ""


def costs_nothing(name: str, memory_of: str) -> bool:
    """Whether a saved value is in memory that the caller holds anyway: it is an input, or a view of one.

    >>> costs_nothing("view_3", "weight"), costs_nothing("primals_2", ""), costs_nothing("mm", "")
    (True, True, False)
    """
    return memory_of != "" or _INPUT.fullmatch(name) is not None


def cost(record: SavedTensorRecord) -> int | None:
    """Bytes of memory that stay allocated because this value is saved; None if a size is symbolic.

    A shared storage counts in full for one of its values, and 0 for the others. If storages are unknown, as in torch's
    logs, each value counts by its own size.

    >>> from msgspec.structs import replace
    >>> alone = SavedTensorRecord("mm", "tensor", "torch.float32", [4], 16, "aten.mm", "", "", "", False, False, "")
    >>> shared = replace(alone, name="view", shares_with="mm", held_bytes=0)
    >>> cost(alone), cost(shared), cost(replace(alone, name="primals_1"))
    (16, 0, 0)
    """
    if record.held_bytes != NONE:
        return record.held_bytes
    return 0 if costs_nothing(record.name, record.memory_of) else record.nbytes


def held(records: Iterable[SavedTensorRecord]) -> list[int]:
    """The bytes that each value holds, of those for which they are known."""
    return [one.held_bytes for one in records if one.held_bytes is not None and one.held_bytes >= 0]


def readers(graph: GraphSnapshot) -> list[list[int]]:
    """For each node, the positions of the nodes that read it, in order. The output node is not counted as a reader.

    >>> readers(GraphSnapshot("pffo", [], [], [[], [[1], 2], [["L", [1], [2]]], [[1]]], {}, [], [], [], [], "", {}, []))
    [[1, 2], [2], [], []]
    """
    found: list[list[int]] = [[] for _ in graph.op]
    for position, op in enumerate(graph.op):
        if op != "o":
            named = graph.kwargs.get(position, {}).values()
            nodes = (number for kind, number in references([*graph.args[position], *named]) if kind == NODE)
            for distance in dict.fromkeys(nodes):
                found[position - distance].append(position)
    return found
