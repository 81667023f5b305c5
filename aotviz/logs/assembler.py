"""Assemble the records of one log: assign each to its process, its compilation and its list of rows.

Usually one process writes one log file. If several processes wrote to one file, or a process learns its rank late, the
process id and the rank in a record tell them apart. A process with its rank is a `Stream`. Compile ids, file numbers
and tensor numbers have a meaning only within a stream, and compile ids only between two resets of Dynamo (`resets.py`).

The result is a `Part` (parts.py). outlines.py adds what depends on other logs, such as the compilations' labels.

The functions in rows.py read the content of a record. If one fails, the record is kept as an artifact, and its line is
reported.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz import __version__
from aotviz.logs import entries, known, stacks
from aotviz.logs.chromium_events import Timeline
from aotviz.logs.lines import Bad, Record
from aotviz.logs.parts import LISTS, Part, StreamRecord
from aotviz.logs.resets import BEGIN_BYTES, MARK, begins, frame_and_number
from aotviz.logs.streams import Compilation, Log, Place, Stream
from aotviz.logs.texts import LONG_BYTES, Texts
from aotviz.recording.schema import (
    FORMAT,
    NONE,
    VERSION,
    ArtifactRecord,
    CompilationData,
    LogRecord,
    RecordingData,
)
from aotviz.recording.strings import clean, cleaned

ZONE_NS = 900 * 10**9  # time zones differ by quarters of an hour
LATEST_S = 1 << 33  # unix time, in the year 2242; later times are invalid

Handler = Callable[["Assembler", Record, "Place"], None]


class Assembler:
    """Takes the records of a log and makes a part of a recording, without graphs: these are read when needed."""

    def __init__(self, log: Log, texts: Texts, handlers: dict[str, Handler], artifacts: dict[str, Handler]) -> None:
        self.log = log
        self.texts = texts
        self.components: dict[str, tuple[int, int]] = {}  # of keys of torch's caches -> (hash, what it is)
        self.data = RecordingData(FORMAT, VERSION, {"aotviz": __version__}, [], [], 0)  # the lists that handlers fill
        self.streams: list[Stream] = []
        self.compilations: list[Compilation] = []
        self.timeline = Timeline()
        self.files: dict[tuple[int, int], str] = {}  # (process, torch's number) -> file name
        self._streams: dict[tuple[int, int], Stream] = {}  # (process, rank)
        self._latest: dict[int, Stream] = {}  # by process
        self._handlers = handlers
        self._artifact_handlers = artifacts
        self._stamps: dict[bytes, int] = {}

    def add(self, item: Record | Bad) -> None:
        """Add the next record of the log."""
        log = self.log
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
        place = self._place(item)
        try:
            handler(self, item, place)
            entries.note(item, place)
        except Exception as error:  # the log may contain anything; always read the rest of it
            reason = f"{label} contains something that this reader does not understand ({type(error).__name__})"
            log.note(item.line, reason, label)
            keep(self, item, place)

    def text(self, text: str | None) -> int:
        return self.texts.add(text)

    def payload(self, record: Record) -> int:
        """The number of a record's text. For a long text, only its location in the file is stored."""
        if record.payload is None:
            return NONE
        if len(record.payload) >= LONG_BYTES:
            return self.texts.add_long(record.payload, record.at, record.digest)
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
            return entries.compilation_of(self, stream, record)
        if (capture := entries.capturing(stream, compile_id)) is not None:
            return capture
        if (export := entries.numbered(self, stream, record, compile_id)) is not None:
            return export
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

    def begin(self, stream: Stream, compile_id: str, kind: str) -> Compilation:
        """A new compilation of an entry point that has no compile ids."""
        found = Compilation(len(self.compilations), stream, compile_id, stream.resets.number, (kind, compile_id))
        found.kind = kind
        stream.compilations[stream.resets.number, compile_id] = found
        self.compilations.append(found)
        return found

    def finish(self) -> Part:
        """Everything that was read, without what other logs may change. More may be added afterwards."""
        frames: dict[tuple[int, int, Hashable], int] = {}
        numbers = [
            frames.setdefault((found.stream.number, found.reset, found.frame), len(frames))
            for found in self.compilations
        ]
        rows = {name: list(getattr(self.data, name)) for name in LISTS}
        rows["tensors"] = [replace(one, sources=list(one.sources)) for one in self.data.tensors]  # more may be logged
        found = replace(
            self.data,
            **rows,
            compilations=[self._compilation(*one) for one in zip(self.compilations, numbers, strict=True)],
            logs=[self._log()],
            events=self.timeline.finish(),
        )
        return Part(
            data=cleaned(found),  # whatever a handler took from a record as it was
            streams=[StreamRecord(0, one.process, one.rank, one.resets.number) for one in self.streams],
            stream_of=[one.stream.number for one in self.compilations],
            texts=self.texts.items,
            digests=self.texts.digests,
            files=[(process, number, name) for (process, number), name in self.files.items()],
        )

    def _place(self, record: Record) -> Place:
        head = record.head
        rank = head.get("rank")
        stream = self._stream(record.process, rank if type(rank) is int and 0 <= rank < 1 << 31 else NONE)
        attempt = head.get("attempt")
        attempt = attempt if type(attempt) is int and 0 <= attempt < 1 << 31 else 0
        compilation = self.compilation(stream, record, attempt)
        unix_ns = self._unix_ns(stream, record.stamp)
        if compilation is not None:
            compilation.attempts = max(compilation.attempts, attempt + 1)
            if not compilation.started_unix_ns:
                compilation.started_unix_ns = unix_ns
        return Place(self.log, stream, compilation, attempt, record.line, unix_ns)

    def _stream(self, process: int, rank: int) -> Stream:
        """The stream of a record. A record without a rank belongs to the latest stream of its process."""
        latest = self._latest.get(process)
        if latest is not None and rank in (NONE, latest.rank):
            return latest
        if latest is not None and latest.rank == NONE:  # the process has learned its rank: it is the same stream
            latest.rank = rank
            self._streams[process, rank] = latest
            return latest
        rank = self.log.rank if rank == NONE else rank
        stream = self._streams.get((process, rank))
        if stream is None:
            stream = Stream(len(self.streams), self.log, process, rank, stacks.Files(process, self.files))
            self.streams.append(stream)
            self._streams[process, rank] = stream
            self.log.processes[process] = None
        self._latest[process] = stream
        return stream

    def _unix_ns(self, stream: Stream, stamp: bytes) -> int:
        """When a line was written. Its stamp has no year or time zone; `clock` finds the correction from an event."""
        day, _, fraction = stamp.partition(b".")
        seconds = self._stamps.get(day)
        if seconds is None:
            seconds = self._stamps[day] = stamp_seconds(self.log.year, day)
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

    def _compilation(self, found: Compilation, frame: int) -> CompilationData:
        return CompilationData(
            id=found.called or found.compile_id,
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
            error=entries.unfinished(found),
            compile_id=found.compile_id,
            because=list(dict.fromkeys(found.because)),  # each attempt logs the reasons again
            attempts=found.attempts,
            log=0,
            stack=found.stack,
            frame=frame,
            reset=found.reset,
            sizes=dict(found.sizes),
        )

    def _log(self) -> LogRecord:
        log = self.log
        return LogRecord(
            name=clean(log.name),
            rank=log.rank,
            nbytes=log.nbytes,
            lines=log.lines,
            records=counted(log.records),
            unknown=counted(log.unknown),
            bad=list(log.bad),
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
            assembler.payload(record),
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
