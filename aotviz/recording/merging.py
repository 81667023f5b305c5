"""Merge compilations that each have their own table of texts into one recording with one table.

While a process runs, each compilation numbers its own texts, so that dropping a compilation drops its texts too. A
file or a page has one table. Merging changes every number that refers to a text, in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from aotviz.recording import numbers
from aotviz.recording.dynamo_stage import Rows
from aotviz.recording.schema import FORMAT, NONE, VERSION, CompilationData, RecordingData
from aotviz.recording.strings import StringTable


def merge(parts: Iterable[tuple[CompilationData, list[str]]], producer: dict[str, str], dropped: int) -> RecordingData:
    """One recording from compilations that each have their own texts."""
    table = StringTable()
    compilations = []
    for data, texts in parts:
        new = [table.add(text) for text in texts]
        if new != list(range(len(new))):
            data = numbers.changed(data, [*new, NONE])
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
                into.append(numbers.changed(moved, new))
    return replace(data, strings=table.texts, **lists)


def _rows_of(data: RecordingData) -> list[tuple[Rows, list[str]]]:
    """The rows that each compilation of a recording without logs has added, one entry per compilation."""
    found = [Rows() for _ in data.compilations]
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
    paintings = [
        replace(painting, compilation=f"rank {rank}: {painting.compilation}")
        for rank, data in enumerate(recordings)
        for painting in data.paintings
    ]
    errors = [error for data in recordings for error in data.call_errors]
    merged = replace(merged, paintings=paintings, call_errors=errors)
    return with_rows(merged, [rows for data in recordings for rows in _rows_of(data)])
