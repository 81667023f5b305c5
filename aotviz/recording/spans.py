"""What happened when, in which process: the times of a recording as spans and marks, whatever it was made from.

A log of torch has a timeline of its own, in events. A compilation of aotviz's own pipeline has stages with times. Both
become spans here. Cache lookups, restarts, graph breaks and failures have a time but no length: they become marks.
The workbench draws the same from the same facts (extensions/core/src/views/timeline/lanes.ts).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aotviz.recording.dynamo_stage import plain_name
from aotviz.recording.schema import NONE, CompilationData, Origin, RecordingData

SLACK_US = 1.0  # torch rounds times: a child may end this much after its parent


@dataclass(frozen=True)
class Span:
    """Something that took time."""

    name: str
    start_us: float  # unix time
    duration_us: float  # -1 without an end: the process stopped, or the log was cut
    args: dict[str, Any]

    @property
    def end_us(self) -> float:
        return math.inf if self.duration_us < 0 else self.start_us + self.duration_us


@dataclass(frozen=True)
class Mark:
    """Something that happened at one moment."""

    kind: str  # "cache hit", "cache miss", ..., "restart", "graph break", "failure"
    time_us: float  # unix time
    args: dict[str, Any]


@dataclass
class Process:
    """One process of a job."""

    number: int  # its rank if it has one that no other process has
    name: str
    threads: dict[str, list[Span]] = field(default_factory=dict)  # in the order of their beginnings
    marks: list[Mark] = field(default_factory=list)


def processes(data: RecordingData, strings: Sequence[str]) -> list[Process]:
    """The processes of a recording, by rank. A process without spans and marks is left out."""
    found = _Processes(data)
    _add_events(found, data, strings)
    for compilation in data.compilations:
        if compilation.log == NONE and compilation.started_unix_ns > 0:
            _add_own(found.of(compilation.rank, NONE), compilation)
    for mark, origin in _marks(data, strings):
        found.about(origin.log, origin.compilation).marks.append(mark)
    return found.numbered()


RESTARTS = "restart_reasons"  # the text of a summary with them


def restarts(data: RecordingData) -> list[Origin]:
    """Where each later attempt of a compilation begins: the earliest record of it. In order of time."""
    first: dict[tuple[int, int], Origin] = {}
    for name in data.__struct_fields__:
        rows = getattr(data, name)
        for row in rows if isinstance(rows, list) else ():
            origin = getattr(row, "origin", None)
            if origin is None or origin.attempt < 1 or origin.unix_ns <= 0:
                continue
            key = (origin.compilation, origin.attempt)
            if key not in first or origin.unix_ns < first[key].unix_ns:
                first[key] = origin
    return sorted(first.values(), key=lambda origin: origin.unix_ns)


def restart_reasons(text: str) -> list[str]:
    """Why Dynamo began again, from torch's text. There is one for each reason, in no certain order.

    >>> restart_reasons('["one", "two"]'), restart_reasons("")
    (['one', 'two'], [])
    """
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return [str(reason) for reason in found] if isinstance(found, list) else []


def nested(spans: Sequence[Span]) -> list[list[tuple[Span, float, float]]]:
    """The spans in as few tracks as possible in which two spans never cross: one contains the other, or they are apart.

    Each is a (span, start, end) in microseconds; a time moves by at most SLACK_US, where rounding made two spans cross.

    >>> one, two, three = Span("one", 0, 10, {}), Span("two", 2, 3, {}), Span("three", 8, 9, {})
    >>> [[span.name for span, _, _ in track] for track in nested([one, two, three])]
    [['one', 'two'], ['three']]
    """
    tracks: list[list[tuple[Span, float, float]]] = []
    open_ends: list[list[float]] = []
    for span in sorted(spans, key=lambda span: (span.start_us, -span.end_us)):
        for track, ends in zip(tracks, open_ends, strict=True):
            start = span.start_us
            while ends and ends[-1] <= span.start_us + SLACK_US and ends[-1] < span.end_us:
                start = max(start, ends.pop())
            if not ends or span.end_us <= ends[-1] + SLACK_US:
                end = max(start, min([span.end_us, *ends[-1:]]))
                track.append((span, start, end))
                ends.append(end)
                break
        else:
            tracks.append([(span, span.start_us, span.end_us)])
            open_ends.append([span.end_us])
    return tracks


class _Processes:
    """The processes by (rank, log); our own compilations have no log."""

    def __init__(self, data: RecordingData) -> None:
        self._data = data
        self._found: dict[tuple[int, int], Process] = {}

    def about(self, log: int, compilation: int) -> Process:
        """The process that wrote a row of a log."""
        rank = self._data.compilations[compilation].rank if compilation >= 0 else NONE
        return self.of(rank if rank >= 0 or log < 0 else self._data.logs[log].rank, log)

    def of(self, rank: int, log: int) -> Process:
        if log == NONE:  # of our own pipeline: in the process of that rank, if there is one
            same = [process for (other, _), process in self._found.items() if other == rank]
            if len(same) == 1:
                return same[0]
        if (rank, log) not in self._found:
            self._found[rank, log] = Process(NONE, self._name(rank, log))
        return self._found[rank, log]

    def _name(self, rank: int, log: int) -> str:
        if rank >= 0:
            return f"rank {rank}"
        wrote = self._data.logs[log].processes if log >= 0 else []
        return f"process {wrote[0]}" if len(wrote) == 1 else "aotviz" if log < 0 else self._data.logs[log].name

    def numbered(self) -> list[Process]:
        """All of them, with numbers and names that no two share."""
        numbers: set[int] = set()
        names: set[str] = set()
        kept = sorted((key, one) for key, one in self._found.items() if one.threads or one.marks)
        for (rank, log), process in kept:
            number = rank if rank >= 0 and rank not in numbers else max([*numbers, *(key[0] for key, _ in kept)]) + 1
            process.number = number
            numbers.add(number)
            if process.name in names:
                process.name += f" ({self._data.logs[log].name})" if log >= 0 else " (aotviz)"
            names.add(process.name)
        return [process for _, process in kept]


def _add_events(found: _Processes, data: RecordingData, strings: Sequence[str]) -> None:
    """The events of torch's timeline, but for those that say what a cache lookup says too."""
    events = data.events
    for row, name in enumerate(events.name):
        number, log = events.compilation[row], events.log[row]
        if strings[name].endswith(("_cache_hit", "_cache_miss", "_cache_bypass")) and events.duration_us[row] == 0:
            continue
        process = found.about(log, number)
        about = _about(data.compilations[number]) if number >= 0 else {}
        args = about | _json(strings[events.args[row]] if events.args[row] >= 0 else "")
        thread = f"torch.compile, thread {events.thread[row]}" if events.thread[row] else "torch.compile"
        span = Span(strings[name], events.start_us[row], events.duration_us[row], args)
        process.threads.setdefault(thread, []).append(span)


def _add_own(process: Process, compilation: CompilationData) -> None:
    """A compilation of aotviz's own pipeline: one span for all stages until it returned, and one for each stage."""
    began = compilation.started_unix_ns
    about, spans = _about(compilation), process.threads.setdefault("aotviz", [])
    ran = [stage for stage in compilation.stages if not stage.replayed and stage.elapsed_ns > 0]
    prompt = [stage.started_ns + stage.elapsed_ns for stage in ran if not stage.late]
    if prompt:
        spans.append(Span(f"{compilation.id} · {plain_name(compilation.name)}", began / 1e3, max(prompt) / 1e3, about))
    for stage in ran:
        args = about | {"summary": stage.summary}
        spans.append(Span(stage.name, (began + stage.started_ns) / 1e3, stage.elapsed_ns / 1e3, args))
    if (answer := compilation.cache) is not None:
        said = {"cache": "aotviz", "key": answer.key, "reason": answer.words}
        process.marks.append(Mark(f"cache {answer.outcome}", began / 1e3, about | said))
    if (error := compilation.error) is not None:
        end = max((stage.started_ns + stage.elapsed_ns for stage in compilation.stages), default=0)
        kind = "ran in eager" if error.ran_in_eager else "failure"
        said = {"stage": error.stage, "reason": error.message}
        process.marks.append(Mark(kind, (began + end) / 1e3, about | said))


def _marks(data: RecordingData, strings: Sequence[str]) -> Iterator[tuple[Mark, Origin]]:
    """What a log says of one moment."""

    def text(number: int) -> str:
        return strings[number] if number >= 0 else ""

    def about(origin: Origin) -> dict[str, Any]:
        return _about(data.compilations[origin.compilation]) if origin.compilation >= 0 else {}

    for lookup in data.cache_lookups:
        origin = lookup.origin
        if lookup.cache != "aotviz" and origin.unix_ns > 0:  # aotviz's own answer is in the compilation
            said = {"cache": lookup.cache, "key": lookup.key, "reason": text(lookup.reason)}
            yield Mark(f"cache {lookup.outcome}", origin.unix_ns / 1e3, about(origin) | said), origin
    why = {row.origin.compilation: text(row.texts.get(RESTARTS, NONE)) for row in data.metrics if RESTARTS in row.texts}
    for origin in restarts(data):
        reasons = [reason.partition("\n")[0] for reason in restart_reasons(why.get(origin.compilation, ""))]
        said = about(origin) | {"attempt": origin.attempt, "reason": "; or: ".join(reasons)}
        yield Mark("restart", origin.unix_ns / 1e3, said), origin
    for found in data.graph_breaks:
        if found.origin.unix_ns > 0:
            said = {"reason": text(found.reason), "place": text(found.place)}
            yield Mark("graph break", found.origin.unix_ns / 1e3, about(found.origin) | said), found.origin
    for row in data.metrics:
        if row.fail_type and row.end_unix_s > 0:
            said = {"type": row.fail_type, "reason": text(row.fail_reason), "place": text(row.fail_place)}
            yield Mark("failure", row.end_unix_s * 1e6, about(row.origin) | said), row.origin


def _about(compilation: CompilationData) -> dict[str, Any]:
    return {"compilation": compilation.id, "function": plain_name(compilation.name)}


def _json(text: str) -> dict[str, Any]:
    """The arguments of an event; {} where they are not a mapping."""
    try:
        said = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return {"args": text}
    return said if isinstance(said, dict) else {"args": text}
