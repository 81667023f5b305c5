"""The planned live bytes of compilations as counters of a trace, beside its times (trace_files.py).

A plan has an order, but no times. So each compilation with a plan is a process of its own, which begins when the
compilation does, and in which a node takes a microsecond: a counter of the bytes alive by kind, and the nodes below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from aotviz.recording import trace_files
from aotviz.recording.compilation import Compilation
from aotviz.recording.live_bytes import KINDS, Memory
from aotviz.recording.spans import Process

CATEGORY = "planned memory"
COUNTER = "live bytes"


def chrome_trace(compilations: Iterable[Compilation]) -> trace_files.Encode:
    """Writes a trace with the counters of these compilations. Those without a plan have none."""

    def encode(found: list[Process], producer: dict[str, str]) -> bytes:
        numbers = count(1 + max(process.number for process in found))
        spans = [span.start_us for process in found for track in process.threads.values() for span in track]
        first = min([*spans, *(mark.time_us for process in found for mark in process.marks)])
        events: list[dict[str, Any]] = []
        for one, memory in _planned(compilations):
            events += _events(next(numbers), one, memory, one.outline.started_unix_ns / 1000 or first)
        return trace_files.chrome_trace(found, producer, events)

    return encode


def _planned(compilations: Iterable[Compilation]) -> Iterator[tuple[Compilation, Memory]]:
    for one in compilations:
        try:
            yield one, one.memory()
        except (LookupError, ValueError):  # no graph runs, or a size is not known
            continue


def _events(number: int, one: Compilation, memory: Memory, began_us: float) -> Iterator[dict[str, Any]]:
    rows = memory.rows
    kinds = [kind for kind in KINDS if any(row.by_kind.get(kind) for row in rows)]
    rank = f", rank {one.rank}" if one.rank >= 0 else ""
    yield trace_files.named("process_name", number, 0, f"planned memory of {one.name} [{one.id}]{rank}: 1 µs is a node")
    yield trace_files.named("thread_name", number, 1, "nodes")
    for row in rows:
        at: dict[str, Any] = {"ts": began_us + row.at, "pid": number}
        alive = {kind: row.by_kind.get(kind, 0) for kind in kinds}
        yield {"ph": "C", "name": COUNTER, "cat": CATEGORY, "tid": 0, "args": alive, **at}
        about = {"phase": row.phase, "alive": row.alive, "line": str(row.node.source), "module": row.node.module_path}
        yield {"ph": "X", "name": row.node.name, "cat": CATEGORY, "tid": 1, "dur": 1, "args": about, **at}
