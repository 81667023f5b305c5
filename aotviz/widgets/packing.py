"""A recording in as few bytes as a page or a notebook can carry it: as in a file, its long columns as differences."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from aotviz.recorder.events import CompilationData, RecordingData, StageRecord

DIFFERENCES = ("name", "value", "sequence")  # columns of a graph that are written so; those of deltas.ts
MOST_KEPT = 150_000  # characters that one output may add to a notebook
MOST_UNZIPPED = 6_000_000  # bytes; a recording of more is not tried, so that no cell waits for it
LONG = 10_000  # characters of a text that is left out where all would be too much
LEFT_OUT = "To keep the notebook small, generated code of more than 10,000 characters was left out of it."


def pack(data: RecordingData) -> bytes:
    """gzip(msgpack), half as large as a file."""
    return gzip.compress(_encoded(data), 9, mtime=0)


def kept(data: RecordingData) -> str:
    """A recording for a notebook: base64 of `pack`, if need be without generated code; "" if it is too large."""
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


def _encoded(data: RecordingData) -> bytes:
    def smaller(compilation: CompilationData) -> CompilationData:
        graphs = [
            replace(graph, **{name: differences(getattr(graph, name)) for name in DIFFERENCES})
            for graph in compilation.graphs
        ]
        return replace(compilation, graphs=graphs)

    fields = {name: getattr(data, name) for name in data.__struct_fields__}
    tree = {**fields, "compilations": [smaller(one) for one in data.compilations], "deltas": True}
    return msgspec.msgpack.encode(tree)


def _without_long_texts(data: RecordingData) -> RecordingData:
    def short(stage: StageRecord) -> StageRecord:
        return replace(stage, code={name: text for name, text in stage.code.items() if len(text) <= LONG})

    compilations = [replace(one, stages=[short(stage) for stage in one.stages]) for one in data.compilations]
    return replace(data, compilations=compilations, notes=[*data.notes, LEFT_OUT])
