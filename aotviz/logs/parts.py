"""What was read from one log, or from several: the unit in which logs are read in parallel, sent and merged.

Each log is read alone, maybe by another process or machine, and numbers its own texts, compilations and functions from
0. `merged` puts parts one behind the other and shifts their numbers; a text that an earlier part has too keeps its
earlier number. The result depends only on the order of the logs, not on how they were grouped: merging is associative.
So a tree of merges gives the same as reading log by log, which merges in the same way.

What one log cannot know (labels of compilations, ranks on which names and records disagree, files that another log of
the process names) is added once, at the end, by outlines.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz import __version__
from aotviz.logs.texts import Item, Span
from aotviz.recording import numbers
from aotviz.recording.schema import FORMAT, NONE, VERSION, CompilationData, EventTable, Origin, RecordingData


class StreamRecord(msgspec.Struct, array_like=True, frozen=True):
    """A process with its rank, in one log."""

    log: int
    process: int
    rank: int  # -1 if unknown
    resets: int  # of Dynamo, that were detected


class Part(msgspec.Struct, frozen=True):
    """What was read from some logs. Compilations have no labels or ranks yet, and events are in order in each log."""

    data: RecordingData  # without graphs, stages, strings and notes
    streams: list[StreamRecord]
    stream_of: list[int]  # one per compilation
    texts: list[Item]
    digests: dict[int, str]  # of long texts, by number
    files: list[tuple[int, int, str]]  # (process, torch's number, name) of the files in stacks


LISTS = tuple(
    name
    for name, value in zip(RecordingData.__struct_fields__, msgspec.structs.fields(RecordingData), strict=True)
    if value.default_factory is list and name not in ("notes", "logs")
)  # the lists of rows that have an origin


def packed(part: Part) -> bytes:
    """The part as bytes that another process can read."""
    return msgspec.msgpack.encode(part)


def unpacked(content: bytes) -> Part:
    return msgspec.msgpack.decode(content, type=Part)


def merged(parts: Iterable[Part]) -> Part:
    """The parts as one, in their order."""
    merger = Merger()
    for part in parts:
        merger.add(part)
    return merger.whole


class Merger:
    """Puts parts one behind the other. Each is merged when it comes, so that it need not be kept."""

    def __init__(self) -> None:
        events = EventTable([], [], [], [], [], [], [], [], [])
        self.whole = Part(
            data=RecordingData(FORMAT, VERSION, {"aotviz": __version__}, [], [], 0, events=events),
            streams=[],
            stream_of=[],
            texts=[],
            digests={},
            files=[],
        )
        self._numbers: dict[str, int] = {}
        self._by_digest: dict[str, int] = {}
        self._frames = 0

    def add(self, part: Part) -> None:
        into, data = self.whole, part.data
        shifts = Shifts(
            texts=[*self._texts(part), NONE],
            log=len(into.data.logs),
            compilation=len(into.data.compilations),
            frame=self._frames,
        )
        shift = len(into.streams)
        into.streams.extend(replace(stream, log=stream.log + shifts.log) for stream in part.streams)
        into.stream_of.extend(stream + shift for stream in part.stream_of)
        into.files.extend(part.files)
        for name in LISTS:
            getattr(into.data, name).extend(shifts.rows(getattr(data, name)))
        self._add_events(data.events, shifts)
        into.data.compilations.extend(map(shifts.compilation_data, data.compilations))
        into.data.logs.extend(data.logs)
        self._frames = 1 + max((found.frame for found in into.data.compilations[shifts.compilation :]), default=NONE)

    def _texts(self, part: Part) -> list[int]:
        """The new number of each text of a part. Those that are new are added."""
        into, log = self.whole, len(self.whole.data.logs)
        new = []
        for old, item in enumerate(part.texts):
            known, key = (self._numbers, item) if isinstance(item, str) else (self._by_digest, part.digests.get(old))
            number = len(into.texts) if key is None else known.setdefault(key, len(into.texts))
            new.append(number)
            if number == len(into.texts):
                into.texts.append(replace(item, log=item.log + log) if isinstance(item, Span) else item)
                if old in part.digests:
                    into.digests[number] = part.digests[old]
        return new

    def _add_events(self, events: EventTable, shifts: Shifts) -> None:
        table, rows = self.whole.data.events, len(self.whole.data.events.name)
        table.parent.extend(NONE if parent == NONE else parent + rows for parent in events.parent)
        table.compilation.extend(map(shifts.of_compilation, events.compilation))
        table.log.extend(log + shifts.log for log in events.log)
        for name in ("name", "args"):
            getattr(table, name).extend([shifts.texts[number] for number in getattr(events, name)])
        for name in ("start_us", "duration_us", "line", "thread"):
            getattr(table, name).extend(getattr(events, name))


class Shifts:
    """The new numbers of what a part refers to."""

    def __init__(self, texts: Sequence[int], log: int, compilation: int, frame: int) -> None:
        self.texts, self.log, self.compilation, self.frame = texts, log, compilation, frame
        self._nothing = log == compilation == frame == 0 and list(texts) == [*range(len(texts) - 1), NONE]

    def rows(self, rows: list[Any]) -> list[Any]:
        if self._nothing or not rows:
            return rows
        return [replace(numbers.changed(row, self.texts), origin=self._origin(row.origin)) for row in rows]

    def _origin(self, origin: Origin) -> Origin:
        return Origin(
            origin.log + self.log,
            origin.line,
            self.of_compilation(origin.compilation),
            origin.attempt,
            origin.unix_ns,
        )

    def of_compilation(self, number: int) -> int:
        return NONE if number == NONE else number + self.compilation

    def compilation_data(self, found: CompilationData) -> CompilationData:
        return replace(found, stack=self.texts[found.stack], log=found.log + self.log, frame=found.frame + self.frame)
