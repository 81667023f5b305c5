"""Write the times of a recording (spans.py) as a trace that other viewers open, all ranks in one file.

`chrome_trace` writes JSON in Chromium's trace event format, for ui.perfetto.dev, chrome://tracing and speedscope.
`perfetto_trace` writes Perfetto's own format, a protobuf. A rank is a process, and a thread of it a thread; where spans
of one thread overlap, a second thread of the same name has those that do not fit. Times are unix times, so a trace can
be shown together with a trace of a profiler.

A plan of memory has an order, but no times. So in a Chrome trace each compilation with a plan is a process of its own,
which begins when the compilation does, and in which a node takes a microsecond: a counter of the bytes alive by kind,
and the nodes below it.

Perfetto's messages are few and simple, so they are encoded here. The numbers of the fields are those of
protos/perfetto/trace/{trace_packet,track_event/*}.proto, which Perfetto never changes.
"""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any

import msgspec

from aotviz.recording.compilation import Compilation
from aotviz.recording.files import RecordingError, replace_file
from aotviz.recording.live_bytes import KINDS, Memory
from aotviz.recording.schema import RecordingData
from aotviz.recording.spans import Mark, Process, Span, nested, processes

MARKS = "cache lookups, restarts, failures"  # the thread of the marks
Track = list[tuple[Span, float, float]]


def write(data: RecordingData, strings: Sequence[str], path: str | os.PathLike[str], encode: Encode) -> None:
    """Write a trace, compressed if the name ends in ".gz". Raises RecordingError if the recording has no times, or
    if the file cannot be written."""
    found = processes(data, strings)
    if not found:
        raise RecordingError("this recording contains no times, so there is no trace to write")
    content = encode(found, data.producer)
    replace_file(path, gzip.compress(content, 6, mtime=0) if os.fspath(path).endswith(".gz") else content)


Encode = Callable[[list[Process], dict[str, str]], bytes]


def chrome_trace(found: list[Process], producer: dict[str, str], compilations: Iterable[Compilation] = ()) -> bytes:
    """The trace as JSON, with the planned memory of these compilations. `ts` and `dur` are microseconds."""
    events: list[dict[str, Any]] = []
    for process in found:
        pid = process.number
        events.append(_named("process_name", pid, 0, process.name))
        events.append({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}})
        for tid, (name, track) in enumerate(_threads(process), 1):
            events.append(_named("thread_name", pid, tid, name))
            events += [_complete(pid, tid, *placed) for placed in track]
        if process.marks:
            events.append(_named("thread_name", pid, 0, MARKS))
            events += [_instant(pid, mark) for mark in process.marks]
    numbers = itertools.count(1 + max(process.number for process in found))
    spans = [span.start_us for process in found for track in process.threads.values() for span in track]
    first = min([*spans, *(mark.time_us for process in found for mark in process.marks)])
    for one, memory in _planned(compilations):
        events += _live_bytes(next(numbers), one, memory, one.outline.started_unix_ns / 1000 or first)
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": producer})


def _planned(compilations: Iterable[Compilation]) -> Iterator[tuple[Compilation, Memory]]:
    for one in compilations:
        try:
            yield one, one.memory()
        except (LookupError, ValueError):  # no graph runs, or a size is not known
            continue


def _live_bytes(number: int, one: Compilation, memory: Memory, began_us: float) -> Iterator[dict[str, Any]]:
    rows = memory.rows
    kinds = [kind for kind in KINDS if any(row.by_kind.get(kind) for row in rows)]
    rank = f", rank {one.rank}" if one.rank >= 0 else ""
    yield _named("process_name", number, 0, f"planned memory of {one.name} [{one.id}]{rank}: 1 µs is a node")
    yield _named("thread_name", number, 1, "nodes")
    for row in rows:
        at: dict[str, Any] = {"cat": "planned memory", "ts": began_us + row.at, "pid": number}
        alive = {kind: row.by_kind.get(kind, 0) for kind in kinds}
        yield {"ph": "C", "name": "live bytes", "tid": 0, "args": alive, **at}
        about = {"phase": row.phase, "alive": row.alive, "line": str(row.node.source), "module": row.node.module_path}
        yield {"ph": "X", "name": row.node.name, "tid": 1, "dur": 1, "args": about, **at}


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    """What a process or a thread is called."""
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(pid: int, tid: int, span: Span, start: float, end: float) -> dict[str, Any]:
    event = {"ph": "X", "name": span.name, "cat": "compile", "ts": start, "pid": pid, "tid": tid, "args": span.args}
    return event | ({"ph": "B"} if end == inf else {"dur": end - start})  # without an end: "B" without its "E"


def _instant(pid: int, mark: Mark) -> dict[str, Any]:
    event = {"ph": "i", "s": "t", "name": mark.kind, "cat": "mark", "ts": mark.time_us, "pid": pid, "tid": 0}
    return event | {"args": mark.args}


def _threads(process: Process) -> Iterator[tuple[str, Track]]:
    """(name, spans that nest) of each thread."""
    for name, spans in process.threads.items():
        for number, track in enumerate(nested(spans), 1):
            yield (name if number == 1 else f"{name} ({number})"), track


BEGIN, END, INSTANT = 1, 2, 3


def perfetto_trace(found: list[Process], producer: dict[str, str]) -> bytes:
    """The trace in Perfetto's protobuf format, a message `Trace`. Times are nanoseconds."""
    numbers = itertools.count(1)
    packets: list[bytes] = []
    for process in found:
        top = next(numbers)
        about = _field(1, process.number) + _field(6, process.name)  # ProcessDescriptor: pid, process_name
        about += b"".join(_field(2, f"{name} {version}") for name, version in producer.items())  # cmdline
        packets.append(_field(60, _field(1, top) + _field(3, about)))
        threads = [(name, _slices(track)) for name, track in _threads(process)]
        if process.marks:
            threads.append((MARKS, ((INSTANT, mark.time_us, mark.kind, mark.args) for mark in process.marks)))
        for tid, (name, slices) in enumerate(threads, 1):
            track = next(numbers)
            thread = _field(1, process.number) + _field(2, process.number * 1000 + tid) + _field(5, name)
            packets.append(_field(60, _field(1, track) + _field(5, top) + _field(4, thread)))
            packets += [_event(track, *slice) for slice in slices]
    return b"".join(_field(1, packet + _field(10, 1)) for packet in packets)  # 10: trusted_packet_sequence_id


def _slices(track: Track) -> Iterator[tuple[int, float, str, dict[str, Any]]]:
    """(type, time, name, arguments) of the beginnings and ends of spans that nest, in order."""
    ends: list[float] = []
    for span, start, end in track:
        while ends and ends[-1] <= start and (ends[-1] < end or ends[-1] < start):
            yield END, ends.pop(), "", {}
        yield BEGIN, start, span.name, span.args
        ends.append(end)
    for end in reversed(ends):
        if end != inf:
            yield END, end, "", {}


def _event(track: int, kind: int, time_us: float, name: str, args: dict[str, Any]) -> bytes:
    """A TracePacket with a TrackEvent."""
    event = _field(9, kind) + _field(11, track)
    if kind != END:
        event += _field(22, "mark" if kind == INSTANT else "compile") + _field(23, name)
        event += b"".join(_field(4, _field(10, key) + _value(value)) for key, value in args.items())
    return _field(8, round(time_us * 1000)) + _field(11, event)


def _value(value: Any) -> bytes:
    """The value of a DebugAnnotation: bool_value, int_value or string_value."""
    if isinstance(value, bool):
        return _field(2, int(value))
    if isinstance(value, int) and 0 <= value < 1 << 63:
        return _field(4, value)
    return _field(6, value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _field(number: int, value: int | str | bytes) -> bytes:
    """A field of a protobuf message: an unsigned integer, or text or a message with its length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    content = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """
    >>> _varint(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
