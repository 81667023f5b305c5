"""Merge compilations that each have their own table of texts into one recording with one table.

While a process runs, each compilation numbers its own texts, so that dropping a compilation drops its texts too. A
file or a page has one table. Merging changes every number that refers to a text, in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from aotviz.recording import numbers as numbers_of_texts
from aotviz.recording.dynamo_stage import Rows
from aotviz.recording.events import (
    FORMAT,
    NONE,
    VERSION,
    CompilationData,
    GraphSnapshot,
    RecordingData,
    ValueRecord,
)
from aotviz.recording.strings import StringTable


def merge(parts: Iterable[tuple[CompilationData, list[str]]], producer: dict[str, str], dropped: int) -> RecordingData:
    """One recording from compilations that each have their own texts."""
    table = StringTable()
    compilations = []
    for data, texts in parts:
        numbers = [table.add(text) for text in texts]
        if numbers != list(range(len(numbers))):
            data = renumbered(data, numbers)
        compilations.append(data)
    return RecordingData(FORMAT, VERSION, producer, table.texts, compilations, dropped)


def with_rows(data: RecordingData, found: Sequence[tuple[Rows, list[str]] | None]) -> RecordingData:
    """The recording with the rows that its compilations add. `found` has one entry per compilation."""
    table = StringTable(data.strings)
    lists: dict[str, list[Any]] = {name: list(getattr(data, name)) for name in Rows.__struct_fields__}
    for number, one in enumerate(found):
        if one is None:
            continue
        rows, texts = one
        new = [*map(table.add, texts), NONE]
        for name, into in lists.items():
            for row in getattr(rows, name):
                moved = replace(row, origin=replace(row.origin, compilation=number))
                into.append(numbers_of_texts.changed(moved, new))
    return replace(data, strings=table.texts, **lists)


def _rows_of(data: RecordingData) -> list[tuple[Rows, list[str]]]:
    """The rows that each compilation of a recording without logs has added, one entry per compilation."""
    found = [Rows([], [], []) for _ in data.compilations]
    for name in Rows.__struct_fields__:
        for row in getattr(data, name):
            if row.origin.compilation >= 0:
                getattr(found[row.origin.compilation], name).append(row)
    return [(rows, data.strings) for rows in found]


def of_ranks(recordings: Sequence[RecordingData]) -> RecordingData:
    """Merge the recordings of a job's ranks, rank 0 first. "rank 1: 0" is the first compilation of rank 1."""
    parts = (
        (replace(compilation, id=f"rank {rank}: {compilation.id}", rank=rank), data.strings)
        for rank, data in enumerate(recordings)
        for compilation in data.compilations
    )
    merged = merge(parts, recordings[0].producer, sum(data.dropped for data in recordings))
    return with_rows(merged, [rows for data in recordings for rows in _rows_of(data)])


def renumbered(data: CompilationData, numbers: list[int]) -> CompilationData:
    """The compilation with every text number `i` changed to `numbers[i]`."""
    new = [*numbers, NONE]  # so that new[NONE] is NONE
    return replace(
        numbers_of_texts.changed(data, new),
        graphs=[_graph(graph, new) for graph in data.graphs],
        values=[_value(value, new) for value in data.values],
    )


def _graph(graph: GraphSnapshot, new: list[int]) -> GraphSnapshot:
    return replace(
        graph,
        name=[new[i] for i in graph.name],
        target=[new[i] for i in graph.target],
        args=[[_argument(arg, new) for arg in args] for args in graph.args],
        kwargs={
            index: {key: _argument(arg, new) for key, arg in named.items()} for index, named in graph.kwargs.items()
        },
        stack=[new[i] for i in graph.stack],
        module=[new[i] for i in graph.module],
        descriptor={index: new[i] for index, i in graph.descriptor.items()},
        output_descriptors=[new[i] for i in graph.output_descriptors],
    )


def _value(value: ValueRecord, new: list[int]) -> ValueRecord:
    return replace(value, dtype=new[value.dtype], device=new[value.device], text=new[value.text])


def _argument(arg: Any, new: list[int]) -> Any:
    """The argument (see GraphSnapshot) with its texts renumbered; references to nodes do not change."""
    if isinstance(arg, list):
        return arg if arg and arg[0] != "L" else ["L", *[_argument(part, new) for part in arg[1:]]]
    if isinstance(arg, dict):
        ((tag, content),) = arg.items()
        if tag == "r":
            return {"r": new[content]}
        if tag == "d":
            return {"d": {key: _argument(part, new) for key, part in content.items()}}
        return {"s": [_argument(part, new) for part in content]}
    return arg
