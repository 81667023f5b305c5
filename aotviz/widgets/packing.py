"""Encode a recording in few bytes, for a page or a notebook, so that it is still quick to read.

The encoding is that of a file, except for the long parts. Columns of graphs are stored as differences. If the only
argument of a node is the node d positions earlier, its arguments are stored as d. If a value differs from the one
before it only in its storage, it is stored as that difference. All texts are joined with NULs into one.
extensions/core/src/deltas.ts decodes it.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz.recording.schema import CompilationData, RecordingData, StageRecord, ValueRecord

DIFFERENCES = ("name", "value", "sequence")  # columns of a graph that are stored as differences; deltas.ts has the same
SEPARATOR = "\0"  # between texts
MOST_KEPT = 150_000  # characters that one output may add to a notebook
MOST_UNZIPPED = 6_000_000  # bytes; a larger recording is not compressed at all, so that the cell does not wait for it
LONG = 10_000  # characters; longer texts are left out if the recording is too large
LEFT_OUT = "To keep the notebook small, generated code of more than 10,000 characters is not stored in it."


def pack(data: RecordingData) -> bytes:
    """The recording as gzip(msgpack); half as large as the file that `save` writes."""
    return gzip.compress(_encoded(data), 9, mtime=0)


def kept(data: RecordingData) -> str:
    """A recording for a notebook: base64 of `pack`, without long texts if necessary; "" if it is still too large."""
    for less in (data, _without_long_texts(data)):
        encoded = _encoded(less)
        if len(encoded) <= MOST_UNZIPPED:
            text = base64.b64encode(gzip.compress(encoded, 9, mtime=0)).decode()
            if len(text) <= MOST_KEPT:
                return text
    return ""


def differences(column: Sequence[int]) -> list[int]:
    """
    >>> differences([5, 6, 7])
    [5, 1, 1]
    """
    return [after - before for before, after in pairwise([0, *column])]


def values(records: Sequence[ValueRecord]) -> list[ValueRecord | int]:
    """The records; one that differs from its predecessor only in its storage becomes the storage's difference."""
    steps = [_step(before, after) for before, after in pairwise(records)]
    return [*records[:1], *(record if step is None else step for record, step in zip(records[1:], steps, strict=True))]


def _step(before: ValueRecord, after: ValueRecord) -> int | None:
    return after.storage - before.storage if replace(after, storage=before.storage) == before else None


def arguments(args: list[Any]) -> list[Any] | int:
    """
    >>> arguments([[3]]), arguments([[3], 1.0])
    (3, [[3], 1.0])
    """
    match args:
        case [[int(distance)]] if type(distance) is int:
            return distance
    return args


def _encoded(data: RecordingData) -> bytes:
    def smaller(compilation: CompilationData) -> dict[str, Any]:
        graphs = [
            replace(
                graph,
                args=[arguments(args) for args in graph.args],
                **{name: differences(getattr(graph, name)) for name in DIFFERENCES},
            )
            for graph in compilation.graphs
        ]
        return {**_fields(compilation), "graphs": graphs, "values": values(compilation.values)}

    texts = SEPARATOR.join(data.strings)
    tree = {
        **_fields(data),
        "strings": texts if texts.count(SEPARATOR) + 1 == len(data.strings) else data.strings,
        "compilations": [smaller(one) for one in data.compilations],
        "deltas": True,
    }
    return msgspec.msgpack.encode(tree)


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _without_long_texts(data: RecordingData) -> RecordingData:
    def short(stage: StageRecord) -> StageRecord:
        return replace(stage, code={name: text for name, text in stage.code.items() if len(text) <= LONG})

    compilations = [replace(one, stages=[short(stage) for stage in one.stages]) for one in data.compilations]
    return replace(data, compilations=compilations, notes=[*data.notes, LEFT_OUT])
