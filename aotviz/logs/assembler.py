"""Assemble the records of any number of logs: assign each to its process, its compilation and its list of rows.

Usually one process writes one log file. If several processes wrote to one file, or a process learns its rank late, the
process id and the rank in a record tell them apart. A process with its rank is a `Stream`. Compile ids, file numbers
and tensor numbers have a meaning only within a stream, and compile ids only between two resets of Dynamo (`resets.py`).

The functions in rows.py read the content of a record. If one fails, the record is kept as an artifact, and its line is
reported.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz import __version__
from aotviz.logs import known
from aotviz.logs.chromium_events import Timeline
from aotviz.logs.lines import Bad, Record
from aotviz.logs.resets import BEGIN_BYTES, MARK, Resets, begins, frame_and_number, labelled
from aotviz.logs.texts import LONG_BYTES, Span, Texts
from aotviz.recording.captured_visits import Done
from aotviz.recording.events import (
    FORMAT,
    NONE,
    VERSION,
    ArtifactRecord,
    BadLine,
    CompilationData,
    ErrorRecord,
    LogRecord,
    Origin,
    RecordingData,
)
from aotviz.recording.strings import clean

ZONE_NS = 900 * 10**9  # time zones differ by quarters of an hour
MOST_BAD_LINES = 100  # of one log that are kept with their reason; the others are only counted
LATEST_S = 1 << 33  # unix time, in the year 2242; later times are invalid

Handler = Callable[["Assembler", Record, "Place"], None]


@dataclass
class Log:
    """One log file while it is being read."""

    name: str
    rank: int
    number: int
    year: int  # of the last write to the file, because the log's time stamps have no year
    nbytes: int = 0
    lines: int = 0
    records: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    bad: list[BadLine] = field(default_factory=list)
    bad_lines: int = 0
    torch: str = ""
    processes: dict[int, None] = field(default_factory=dict)

    def note(self, line: int, reason: str, text: str) -> None:
        self.bad_lines += 1
        if len(self.bad) < MOST_BAD_LINES:
            self.bad.append(BadLine(line, clean(reason), clean(text)))


@dataclass
class Compilation:
    """One compile id of a stream, between two resets, while the log is being read."""

    number: int
    stream: Stream
    compile_id: str
    reset: int  # how many resets of the stream came before
    frame: Hashable  # identifies the function, within the stream and between these resets
    started: bool = False  # whether its `dynamo_start` was read, which names the function
    name: str = ""
    kind: str = ""
    started_unix_ns: int = 0
    attempts: int = 1
    stack: int = NONE
    error: ErrorRecord | None = None
    because: list[str] = field(default_factory=list)  # one per logged reason


@dataclass
class Stream:
    """A process with its rank, if it has one."""

    number: int
    log: Log
    process: int
    rank: int
    files: dict[int, str] = field(default_factory=dict)  # torch's number -> file name
    compilations: dict[tuple[int, str], Compilation] = field(default_factory=dict)  # by reset and compile id
    latest: dict[str, Compilation] = field(default_factory=dict)  # by compile id, the last that began
    resets: Resets = field(default_factory=Resets)
    sources: dict[tuple[Any, Any], list[int]] = field(default_factory=dict)  # of described tensors
    captures: list[tuple[str, list[Done]]] = field(default_factory=list)  # by torch's compiled autograd, with their ids
    shift_ns: int = 0  # from a line's time stamp, which has no time zone or year, to unix time


@dataclass(slots=True)
class Place:
    """Where a record is in the log, and the compilation that it belongs to."""

    log: Log
    stream: Stream
    compilation: Compilation | None
    attempt: int
    line: int
    unix_ns: int

    @property
    def origin(self) -> Origin:
        number = self.compilation.number if self.compilation is not None else NONE
        return Origin(self.log.number, self.line, number, self.attempt, self.unix_ns)


class Assembler:
    """Takes records and makes a recording without graphs, which are read from their texts when they are needed."""

    def __init__(self, texts: Texts, handlers: dict[str, Handler], artifacts: dict[str, Handler]) -> None:
        self.texts = texts
        self.logs: list[Log] = []
        self.data = RecordingData(FORMAT, VERSION, {"aotviz": __version__}, [], [], 0)  # the lists that handlers fill
        self.streams: dict[tuple[int, int, int], Stream] = {}  # (log, process, rank)
        self.latest: dict[tuple[int, int], Stream] = {}  # (log, process)
        self.compilations: list[Compilation] = []
        self.timeline = Timeline()
        self._handlers = handlers
        self._artifact_handlers = artifacts
        self._stamps: dict[tuple[int, bytes], int] = {}

    def log(self, name: str, rank: int, year: int) -> Log:
        """Begin another log. `rank` is the rank in the file's name, or -1."""
        log = Log(name, rank, len(self.logs), year)
        self.logs.append(log)
        return log

    def add(self, log: Log, item: Record | Bad) -> None:
        """Add the next record of a log."""
        if isinstance(item, Bad):
            log.note(item.line, item.reason, item.text)
            return
        label, handler = item.kind, self._handlers.get(item.kind, keep)
        if item.kind == "artifact":
            name = str(item.content.get("name", "")) if isinstance(item.content, dict) else ""
            label = f"artifact/{name}"
            handler = self._artifact_handlers.get("cache" if known.CACHES.fullmatch(name) else name, keep)
        log.records[label] += 1
        if not known.is_known(label):
            log.unknown[label] += 1
        if item.damage:
            log.note(item.line, item.damage, label)
        place = self._place(log, item)
        try:
            handler(self, item, place)
        except Exception as error:  # the log may contain anything; always read the rest of it
            reason = f"{label} contains something that this reader does not understand ({type(error).__name__})"
            log.note(item.line, reason, label)
            keep(self, item, place)

    def text(self, text: str | None) -> int:
        return self.texts.add(text)

    def payload(self, record: Record, log: Log) -> int:
        """The number of a record's text. For a long text, only its location in the file is stored."""
        if record.payload is None:
            return NONE
        if len(record.payload) >= LONG_BYTES:
            return self.texts.add_span(Span(log.number, record.at, len(record.payload)), record.digest)
        return self.texts.add(record.text)

    def json(self, value: Any) -> int:
        """The number of a value's JSON text; NONE for None and for an empty list or mapping."""
        if value is None or value == {} or value == []:
            return NONE
        try:
            text = msgspec.json.encode(value).decode("utf-8", "replace")
        except (OverflowError, RecursionError, ValueError):  # huge integers, deep nesting, lone surrogates
            try:
                text = json.dumps(value)
            except (ValueError, RecursionError):
                text = '"what stood here can\'t be shown"'
        return self.texts.add(text)

    def compilation(self, stream: Stream, record: Record, attempt: int) -> Compilation | None:
        """The compilation that a record belongs to, which is new if the record begins one, or None."""
        compile_id, known = compile_id_of(record.head), frame_and_number(record.head)
        if not compile_id or known is None:
            return None
        reset = record.head.get(MARK)
        if type(reset) is int and 0 <= reset < 1 << 31:
            stream.resets.at(reset)
        elif begins(record.kind, (record.payload or b"")[:BEGIN_BYTES].decode("utf-8", "replace")):
            reset = stream.resets.begun(*known)
        elif record.kind == "dynamo_start" and attempt == 0 and (code := code_of(record.content)) is not None:
            before = stream.resets.number
            reset = stream.resets.started(*known, code)
            fresh = stream.compilations.get((before, compile_id)) if reset != before else None
            if fresh is not None and not fresh.started:  # its event came first, before we knew that there was a reset
                stream.compilations[reset, compile_id] = stream.compilations.pop((before, compile_id))
                fresh.reset = reset
        elif compile_id in stream.latest:  # may be from before a reset, because a backward is compiled late
            return stream.latest[compile_id]
        else:
            reset = stream.resets.number
        key = (reset, compile_id)
        if key not in stream.compilations:
            found = Compilation(len(self.compilations), stream, compile_id, reset, known[0])
            stream.compilations[key] = stream.latest[compile_id] = found
            self.compilations.append(found)
        return stream.compilations[key]

    def finish(self) -> RecordingData:
        """The recording of everything that was read, without the graphs."""
        labels, frames = self._labels(), self._frames()
        versions = sorted({log.torch for log in self.logs} - {""})
        self.texts.release()
        return replace(
            self.data,
            producer=self.data.producer | ({"torch": ", ".join(versions)} if versions else {}),
            compilations=[
                self._compilation(found, labels[found.stream.number], frame)
                for found, frame in zip(self.compilations, frames, strict=True)
            ],
            notes=[*self.data.notes, *self._resets(labels)],
            logs=[self._log(log) for log in self.logs],
            events=self.timeline.finish(),
        )

    def _place(self, log: Log, record: Record) -> Place:
        head = record.head
        rank = head.get("rank")
        stream = self._stream(log, record.process, rank if type(rank) is int and 0 <= rank < 1 << 31 else NONE)
        attempt = head.get("attempt")
        attempt = attempt if type(attempt) is int and 0 <= attempt < 1 << 31 else 0
        compilation = self.compilation(stream, record, attempt)
        unix_ns = self._unix_ns(log, stream, record.stamp)
        if compilation is not None:
            compilation.attempts = max(compilation.attempts, attempt + 1)
            if not compilation.started_unix_ns:
                compilation.started_unix_ns = unix_ns
        return Place(log, stream, compilation, attempt, record.line, unix_ns)

    def _stream(self, log: Log, process: int, rank: int) -> Stream:
        """The stream of a record. A record without a rank belongs to the latest stream of its process."""
        latest = self.latest.get((log.number, process))
        if latest is not None and rank in (NONE, latest.rank):
            return latest
        if latest is not None and latest.rank == NONE:  # the process has learned its rank: it is the same stream
            latest.rank = rank
            self.streams[log.number, process, rank] = latest
            return latest
        rank = log.rank if rank == NONE else rank
        key = (log.number, process, rank)
        if key not in self.streams:
            self.streams[key] = Stream(len(self.streams), log, process, rank)
            log.processes[process] = None
        self.latest[log.number, process] = self.streams[key]
        return self.streams[key]

    def _unix_ns(self, log: Log, stream: Stream, stamp: bytes) -> int:
        """When a line was written. Its stamp has no year or time zone; `clock` finds the correction from an event."""
        day, _, fraction = stamp.partition(b".")
        seconds = self._stamps.get((log.year, day))
        if seconds is None:
            seconds = self._stamps[log.year, day] = stamp_seconds(log.year, day)
        if seconds == 0:
            return 0
        return seconds * 10**9 + int(fraction.ljust(9, b"0")) + stream.shift_ns

    def clock(self, place: Place, unix_us: float) -> None:
        """Correct the stream's clock by an event's unix time, because line stamps have no year or time zone."""
        if not place.unix_ns or not 0 < unix_us < LATEST_S * 1e6:
            return
        difference = round((unix_us * 1000 - place.unix_ns) / ZONE_NS) * ZONE_NS
        if difference:
            compilation = place.compilation
            if compilation is not None and compilation.started_unix_ns == place.unix_ns:
                compilation.started_unix_ns += difference
            place.stream.shift_ns += difference
            place.unix_ns += difference

    def _labels(self) -> dict[int, str]:
        """For each stream, the prefix that makes its compile ids unique in the recording."""
        streams = list({found.stream.number: found.stream for found in self.compilations}.values())
        ranks = Counter(stream.rank for stream in streams)
        in_log = Counter(stream.log.number for stream in streams)
        labels = {}
        for stream in streams:
            parts = [f"rank {stream.rank}"] if stream.rank != NONE else []
            if ranks[stream.rank] > 1 and len(in_log) > 1:
                parts.append(f"log {stream.log.number + 1}")
            if ranks[stream.rank] > 1 and in_log[stream.log.number] > 1:
                parts.append(f"process {stream.process}")
            labels[stream.number] = ", ".join(parts) if len(streams) > 1 else ""
        return labels

    def _frames(self) -> list[int]:
        """For each compilation, the number of its function, which is unique across all logs."""
        numbers: dict[tuple[int, int, Hashable], int] = {}
        return [
            numbers.setdefault((found.stream.number, found.reset, found.frame), len(numbers))
            for found in self.compilations
        ]

    def _resets(self, labels: Mapping[int, str]) -> list[str]:
        """A note for each process in which Dynamo was reset."""
        notes = []
        for stream in self.streams.values():
            count = stream.resets.number
            if count:
                times = "once" if count == 1 else f"{count} times or more"
                where = f" in {labels[stream.number]}" if labels.get(stream.number) else ""
                notes.append(
                    f"torch._dynamo.reset() was called {times}{where}: compile ids restart at 0/0 each time, "
                    'so later ones are marked "reset 1" and so on'
                )
        return list(dict.fromkeys(notes))

    def _compilation(self, found: Compilation, label: str, frame: int) -> CompilationData:
        return CompilationData(
            id=labelled(found.compile_id, found.reset, label),
            name=clean(found.name or found.compile_id),
            kind=found.kind,
            started_unix_ns=found.started_unix_ns,
            options={},
            stages=[],
            graphs=[],
            values=[],
            inputs=[],
            outputs=[],
            saved_tensors=[],
            wrapper=None,
            error=found.error,
            compile_id=found.compile_id,
            because=list(dict.fromkeys(found.because)),  # each attempt logs the reasons again
            attempts=found.attempts,
            rank=found.stream.rank,
            log=found.stream.log.number,
            stack=found.stack,
            frame=frame,
            reset=found.reset,
        )

    def _log(self, log: Log) -> LogRecord:
        ranks = {stream.rank for stream in self.streams.values() if stream.log is log}
        rank = ranks.pop() if len(ranks) == 1 else log.rank
        return LogRecord(
            name=clean(log.name),
            rank=rank,
            nbytes=log.nbytes,
            lines=log.lines,
            records=counted(log.records),
            unknown=counted(log.unknown),
            bad=log.bad,
            bad_lines=log.bad_lines,
            torch=clean(log.torch),
            processes=list(log.processes),
        )


def keep(assembler: Assembler, record: Record, place: Place) -> None:
    """Keep a record as an artifact."""
    content = record.content if isinstance(record.content, dict) else {"content": record.content}
    name = next((content[key] for key in ("name", "filename", "url") if isinstance(content.get(key), str)), "")
    fields = {key: value for key, value in content.items() if key not in ("name", "encoding")}
    fields |= {key: record.head[key] for key in ("stack", "subgraph_name") if record.head.get(key)}
    encoding = content.get("encoding")
    assembler.data.artifacts.append(
        ArtifactRecord(
            place.origin,
            assembler.text(record.kind),
            assembler.text(name),
            clean(encoding) if isinstance(encoding, str) else "",
            assembler.payload(record, place.log),
            assembler.json(fields),
        )
    )


def compile_id_of(head: dict[str, Any]) -> str:
    """Dynamo's name for the compilation that a record belongs to, or "".

    >>> compile_id_of({"frame_id": 0, "frame_compile_id": 3}), compile_id_of({"compiled_autograd_id": 1})
    ('0/3', '!1')
    """
    frame, again, autograd = (head.get(key) for key in ("frame_id", "frame_compile_id", "compiled_autograd_id"))
    whole = f"{frame}/{again}" if type(frame) is int and type(again) is int else ""
    if type(autograd) is int:
        return f"!{autograd}/{whole}" if whole else f"!{autograd}"
    return whole


def code_of(content: Any) -> tuple[str, ...] | None:
    """The file, line and name of the frame in a `dynamo_start` record, which identify the compiled function.

    >>> code_of({"stack": [{"line": 9, "name": "<module>", "filename": 1}, {"line": 2, "name": "f", "filename": 1}]})
    ('1', '2', 'f')
    """
    frames = content.get("stack") if isinstance(content, dict) else None
    last = frames[-1] if isinstance(frames, list) and frames else None
    return tuple(str(last.get(key)) for key in ("filename", "line", "name")) if isinstance(last, dict) else None


def stamp_seconds(year: int, day: bytes) -> int:
    """The unix time of a stamp such as b"0701 12:00:00", read as UTC; 0 for an invalid stamp.

    >>> stamp_seconds(2026, b"0701 12:00:00"), stamp_seconds(2026, b"9901 12:00:00")
    (1782907200, 0)
    """
    try:
        moment = datetime.datetime.strptime(f"{year} {day.decode()}", "%Y %m%d %H:%M:%S")
    except ValueError:
        return 0
    return int(moment.replace(tzinfo=datetime.UTC).timestamp())


def counted(counts: Counter[str]) -> dict[str, int]:
    return {clean(name): count for name, count in sorted(counts.items())}
