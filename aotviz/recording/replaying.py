"""A compilation's recording in bytes, which aotviz's cache keeps, and what another process makes of them.

Each process numbers its own texts, values and graphs. So the bytes have one part for each process that recorded
something: the one that compiled the program, and maybe another that compiled its backward later. A part is packed on
its own. To add one, the others are copied as they are. A hit only stores the bytes; they are unpacked when somebody
reads the recording. Then the parts are merged, and become the numbers of one compilation.

The bytes may be damaged, or of a later release. Then the compilation has no stages from the cache, and says so. This
module does not import torch.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz.recording import dynamo_stage, files, numbers
from aotviz.recording.node_arguments import PackedGraph, Row, unpacked
from aotviz.recording.saved import Halves, Kept
from aotviz.recording.schema import (
    FORMAT,
    NONE,
    VERSION,
    CompilationData,
    GraphSnapshot,
    RecordingData,
    StageRecord,
    ValueRecord,
)
from aotviz.recording.strings import StringTable

MAGIC = b"\x93AOTVIZR"
LIMIT_BYTES = 1 << 28  # of all parts, after decompression
NOT_RECORDED = "the process that compiled it did not record it"
GIVEN = "given"  # the record before a stage whose graph no earlier stage returned
OWN = (  # facts of a compilation that are those of the process that replays it
    "id",
    "name",
    "started_unix_ns",
    "options",
    "because",
    "frame",
    "error",
    "compile_id",
    "attempts",
    "rank",
    "cache",
    "replayed",
)


class Head(msgspec.Struct, frozen=True):
    """What is known of a packed compilation before its parts are unpacked."""

    version: int  # of the wire format
    kind: str  # as in CompilationData
    stages: int
    most_nodes: int  # of the largest graph
    dynamo: str = ""  # a digest of Dynamo's graph, by which another process knows that its own is the same
    late: list[str] = []  # the late stages


class Part(msgspec.Struct, frozen=True):
    """What one process recorded. Its numbers refer to its own texts, rows, values and graphs."""

    data: CompilationData  # without graphs and values, and without the stage "dynamo"
    graphs: list[bytes]  # packed PackedGraphs; b"" for one that no stage refers to
    rows: list[bytes]  # packed lists of Rows
    values: list[bytes]  # packed lists of ValueRecords
    kept: Kept | None
    texts: list[str]
    dynamo: int = NONE  # the graph that Dynamo captured

    def unpacked(self) -> tuple[list[GraphSnapshot], list[ValueRecord]]:
        """The graphs, with _NOTHING for one that no stage refers to, and the values."""
        decode = msgspec.msgpack.decode
        rows = list(chain.from_iterable(decode(packed, type=list[Row]) for packed in self.rows))
        graphs = [unpacked(decode(one, type=PackedGraph), rows) if one else _NOTHING for one in self.graphs]
        return graphs, [one for packed in self.values for one in decode(packed, type=list[ValueRecord])]


class Packed(msgspec.Struct, frozen=True):
    """The bytes, opened."""

    head: Head
    parts: list[bytes]  # each is zlib over msgpack of a Part


class Unreadable(ValueError):
    """The bytes cannot be used. The message says why, as the end of a sentence."""


def pack(head: Head, earlier: Sequence[bytes], part: Part | None) -> bytes:
    """The bytes of a compilation: the `earlier` parts as they are, and one more."""
    new = [] if part is None else [zlib.compress(msgspec.msgpack.encode(part), 6)]
    return MAGIC + msgspec.msgpack.encode(Packed(head, [*earlier, *new]))


def opened(content: bytes) -> Packed:
    """The head and the packed parts. Raises Unreadable."""
    if not content.startswith(MAGIC):
        raise Unreadable("the recording in the cache's entry is damaged")
    try:
        packed = msgspec.msgpack.decode(memoryview(content)[len(MAGIC) :], type=Packed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unreadable("the recording in the cache's entry is damaged, or of another version of aotviz") from None
    if packed.head.version != VERSION:
        raise Unreadable(
            f"the recording in the cache's entry has format {packed.head.version}, and this aotviz reads {VERSION}"
        )
    return packed


def parts_of(packed: Packed) -> list[Part]:
    """The parts. Raises Unreadable."""
    left, parts = LIMIT_BYTES, []
    try:
        for part in packed.parts:
            plain = files.decompressed(part, left, zlib.MAX_WBITS)
            left -= len(plain)
            parts.append(msgspec.msgpack.decode(plain, type=Part))
        return parts
    except (files.Damage, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unreadable("the recording in the cache's entry is damaged") from None


def nbytes(parts: Sequence[Part]) -> int:
    """About how many bytes of memory unpacked parts hold."""
    packed = (text for part in parts for text in chain(part.graphs, part.rows, part.values, part.texts))
    return sum(map(len, packed))


def opened_or_not(content: bytes | None) -> tuple[Packed | None, str]:
    """The bytes, opened; or None, and why they cannot be used."""
    if not content:
        return None, NOT_RECORDED
    try:
        return opened(content), ""
    except Unreadable as error:
        return None, str(error)


def late(stages: Sequence[StageRecord]) -> list[str]:
    """The late stages, in words that are the same in each process that runs them: what follows counts its graphs."""
    return [
        f"{stage.name}: {stage.summary.partition('; ')[0]}" for stage in stages if stage.late and stage.name != GIVEN
    ]


def trimmed(own: Part, stages: list[StageRecord]) -> Part:
    """The part for an entry with these stages of `own`, without what no other process needs."""
    data = replace(
        own.data, stages=stages, started_unix_ns=0, options={}, because=[], stack=NONE, cache=None, replayed=None
    )
    return replace(own, data=data, graphs=used(own.graphs, stages, own.kept, own.dynamo))


def alone(own: Part) -> CompilationData:
    """A compilation that was not replayed."""
    graphs, values = own.unpacked()
    data = replace(own.data, graphs=graphs, values=values)
    if own.kept is None:
        return data
    halves = Halves(own.kept, data.graphs, data.values, own.texts)
    return replace(data, saved_tensors=halves.saved_tensors(), recomputed=halves.recomputed())


def without_dynamo(stages: Sequence[StageRecord]) -> list[StageRecord]:
    """The stages that another process may replay: it has a stage "dynamo" of its own."""
    return [stage for stage in stages if stage.name != dynamo_stage.NAME]


def used(graphs: Sequence[bytes], stages: Sequence[StageRecord], kept: Kept | None, dynamo: int) -> list[bytes]:
    """The graphs, with b"" for each to which nothing refers."""
    referred = {dynamo} | set(chain.from_iterable(stage.graphs.values() for stage in stages))
    if kept is not None:
        referred |= {kept.forward, kept.backward}
    return [graph if number in referred else b"" for number, graph in enumerate(graphs)]


def outline(parts: Sequence[Part], own: Part, first: int, table: StringTable) -> CompilationData:
    """A replayed compilation without its graphs and values.

    `own` is what this process recorded: `first` stages before those of `parts`, and the others after them. The texts
    are added to `table`: those of `parts` first.
    """
    new = [[*map(table.add, part.texts), NONE] for part in (*parts, own)]
    late = [stage for stage in own.data.stages[first:] if stage.name != GIVEN]
    stages = [part.data.stages for part in parts]
    return _told(parts, own.data, stages, own.data.stages[:first], late, new[-1][own.data.stack])


def merged(parts: Sequence[Part], own: Part, first: int, table: StringTable) -> CompilationData:
    """The same with all that belongs to it. Raises Unreadable if the numbers in `parts` do not fit."""
    graphs: list[GraphSnapshot] = []
    values: list[ValueRecord] = []
    stages, tables, dynamo = [], {}, NONE
    try:
        for part in (*parts, own):
            moved = _Moved(part, table, graphs, values)
            stages.append(moved.stages)
            if part.dynamo != NONE and part is not own:
                dynamo = moved.places[part.dynamo]
            if part.kept is not None:
                tables = {"saved_tensors": moved.halves.saved_tensors(), "recomputed": moved.halves.recomputed()}
        before, after = stages[-1][:first], stages[-1][first:]
        if before and before[0].name == dynamo_stage.NAME and not before[0].graphs and dynamo != NONE:
            before[0] = replace(before[0], graphs={dynamo_stage.ROLE: dynamo})  # the same as that of the entry
        data = _told(parts, own.data, stages[:-1], before, after, moved.texts[own.data.stack])
        data = replace(data, graphs=graphs, values=values, **tables)
        files.check(RecordingData(FORMAT, VERSION, {}, table.texts, [data], 0))
    except (LookupError, TypeError, ValueError, msgspec.DecodeError, files.Damage):
        raise Unreadable("the recording in the cache's entry is damaged") from None
    return data


def _told(
    parts: Sequence[Part],
    own: CompilationData,
    replayed: Sequence[Sequence[StageRecord]],
    before: Sequence[StageRecord],
    after: Sequence[StageRecord],
    stack: int,
) -> CompilationData:
    """The facts of the entry, and what only this process knows."""
    ran, ran_late = {stage.name for stage in before}, set(late(after))
    others = [
        replace(stage, replayed=True)
        for those in replayed
        for stage in those
        if stage.name not in ran and ran_late.isdisjoint(late([stage]))
    ]
    known = {name: getattr(own, name) for name in OWN}
    wrapper = parts[0].data.wrapper
    if wrapper is not None and own.wrapper is not None:
        known["wrapper"] = replace(wrapper, filename=own.wrapper.filename)
    return replace(parts[0].data, **known, stages=[*before, *others, *after], stack=stack)


class _Moved:
    """The stages of a part, after its texts, values and graphs were appended to those of the parts before it."""

    def __init__(self, part: Part, table: StringTable, graphs: list[GraphSnapshot], values: list[ValueRecord]) -> None:
        own, held = part.unpacked()
        if part.kept is not None:
            self.halves = Halves(part.kept, own, held, part.texts)
        texts = [*map(table.add, part.texts), NONE]
        there, shift, group = len(graphs), len(values), 1 + max((value.storage for value in values), default=NONE)
        if not shift and texts[:-1] == list(range(len(part.texts))):  # the first part: its numbers are right
            values += held
            moved = own
        else:
            values += [_value(value, texts, shift, group) for value in held]
            moved = [graph if graph is _NOTHING else _graph(graph, texts, shift) for graph in own]
        places = {number: _place(graph, graphs, there) for number, graph in enumerate(moved) if graph is not _NOTHING}
        self.texts, self.places = texts, places
        self.stages = [
            replace(stage, graphs={role: places[number] for role, number in stage.graphs.items()})
            for stage in part.data.stages
        ]
        if there:  # what late work starts from is a graph of an earlier part, if it is that graph
            self.stages = [
                stage for stage in self.stages if stage.name != GIVEN or max(stage.graphs.values(), default=0) >= there
            ]


def _value(value: ValueRecord, texts: Sequence[int], shift: int, group: int) -> ValueRecord:
    value = numbers.changed(value, texts)
    storage = NONE if value.storage == NONE else value.storage + group
    return replace(value, parts=[number + shift for number in value.parts], storage=storage)


def _graph(graph: GraphSnapshot, texts: Sequence[int], shift: int) -> GraphSnapshot:
    graph = numbers.changed(graph, texts)
    return replace(graph, value=[NONE if number == NONE else number + shift for number in graph.value])


def _place(graph: GraphSnapshot, graphs: list[GraphSnapshot], there: int) -> int:
    """The number of a graph. One that the cache's entry brought back is one of the first `there` graphs."""
    nodes = graph.op, graph.name, graph.target, graph.args, graph.kwargs
    for number, other in enumerate(graphs[:there]):
        if nodes == (other.op, other.name, other.target, other.args, other.kwargs):
            return number
    graphs.append(graph)
    return len(graphs) - 1


_NOTHING: Any = GraphSnapshot("", [], [], [], {}, [], [], [], [], "", {}, [])
