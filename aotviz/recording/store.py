"""Where a running process keeps what it records: a bounded store of compilations.

Recording is always on, so it must not grow without bound, and a million small Python objects would slow every garbage
collection of the user's program. So each graph is packed into bytes as soon as it is recorded. A stored compilation is
a few strings and byte strings of known size, and it is unpacked when it is read. When the store is full, the oldest
compilation is dropped, and the drops are counted.

The store is thread safe: autograd's thread may compile and record a backward while a notebook reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz.recording import dynamo_stage, progress
from aotviz.recording.events import NONE, CompilationData, ErrorRecord, StageRecord, ValueRecord
from aotviz.recording.node_arguments import PackedGraph, Row, unpacked
from aotviz.recording.progress import Progress
from aotviz.recording.saved import Halves, Kept
from aotviz.recording.strings import StringTable

STRING_OVERHEAD_BYTES = 150  # of Python objects, for each text in a StringTable
STAGE_BYTES = 2_000  # estimate for one StageRecord without its texts
ROW_BYTES = 600  # estimate for one input, output or saved tensor

_encoder = msgspec.msgpack.Encoder()


class CompilationLog:
    """What has been recorded of one compilation so far. A Recorder writes it, and a Store gives it to readers."""

    def __init__(
        self,
        name: str,
        options: dict[str, str],
        strings: StringTable,
        because: Sequence[str] = (),
        function: int = NONE,
        before_ns: int = 0,
    ) -> None:
        self._lock = threading.Lock()
        self._strings = strings
        self._data = CompilationData(
            id="",  # the store gives it one
            name=name,
            kind="",  # until it is known
            started_unix_ns=time.time_ns() - before_ns,
            options=options,
            stages=[],
            graphs=[],  # packed in `_graphs`, and the values in `_values`
            values=[],
            inputs=[],
            outputs=[],
            saved_tensors=[],  # they follow from `_kept`
            wrapper=None,
            error=None,
            because=list(because),
            frame=function,
        )
        self._graphs: list[bytes] = []
        self._rows: list[bytes] = []
        self._graph_numbers: dict[bytes, int] = {}
        self._values: list[bytes] = []
        self._kept: Kept | None = None
        self._captured = b""  # a packed dynamo_stage.Captured
        self._packed_bytes = 0
        self._stage_bytes = 0
        self.most_nodes = 0  # of the largest graph
        self._running = ""  # the stage that is running
        self._is_over = False
        self.cut_again: Callable[..., tuple[CompilationData, list[str]]] | None = None  # None without a joint graph
        self.revision = 0  # grows whenever there is more to read
        self._number = progress.begun(self)

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory this log holds."""
        data = self._data
        rows = len(data.inputs) + len(data.outputs) + sum(2 + len(visit.steps) for visit in data.visits)
        rows += len(self._kept.saved) + len(self._kept.recomputed) if self._kept else 0
        rows += sum(len(storage.tensors) + len(storage.writes) for storage in data.storages)
        texts = self._strings.characters + STRING_OVERHEAD_BYTES * len(self._strings.texts)
        wrapper = len(data.wrapper.source) if data.wrapper else 0
        return self._packed_bytes + len(self._captured) + self._stage_bytes + texts + wrapper + ROW_BYTES * rows

    def begin(self, stage: str) -> None:
        """Note that a stage begins to run. `stage` is called when it has ended."""
        self._running, self._is_over = stage, False
        progress.moved(self)

    def end(self) -> None:
        """Note that the compilation is over or has failed. A late stage starts it again with `begin`."""
        self._running, self._is_over = "", True
        progress.moved(self)

    def progress(self) -> Progress:
        """The current state, for live views (see progress.py)."""
        with self._lock:
            data, error, running = self._data, self._data.error, self._running
            state: progress.State = "paused"
            if error is not None:
                state = "failed"
            elif running or self._is_over:
                state = "running" if running else "done"
            return Progress(
                number=self._number,
                name=data.name,
                kind=data.kind,
                state=state,
                stage=running or (error.stage if error else data.stages[-1].name if data.stages else ""),
                stages=sum(stage.name != "given" for stage in data.stages),
                elapsed_ns=sum(stage.elapsed_ns for stage in data.stages),
                started_unix_ns=data.started_unix_ns,
                error=_told(error) if error else "",
            )

    def graph(self, graph: PackedGraph, rows: Sequence[Row]) -> int:
        """Store a graph and return its number. A graph that has not changed keeps its number.

        `rows` are the rows that this graph adds, in the order of their numbers.
        """
        packed, packed_rows = _encoder.encode(graph), _encoder.encode(rows)
        self.most_nodes = max(self.most_nodes, len(graph.rows))
        with self._lock:
            if rows:
                self._rows.append(packed_rows)
                self._packed_bytes += len(packed_rows)
            number = self._graph_numbers.get(packed)
            if number is None:
                number = self._graph_numbers[packed] = len(self._graphs)
                self._graphs.append(packed)
                self._packed_bytes += len(packed)
            return number

    def values(self, records: list[ValueRecord]) -> None:
        """Store the next values, in the order of their numbers."""
        if records:
            packed = _encoder.encode(records)
            with self._lock:
                self._values.append(packed)
                self._packed_bytes += len(packed)
                self.revision += 1

    def stage(self, record: StageRecord) -> None:
        texts = sum(map(len, record.code.values()))
        reasons = sum(len(evidence.subject) + len(evidence.reason) + 100 for evidence in record.evidence)
        with self._lock:
            self._data.stages.append(record)
            self._stage_bytes += STAGE_BYTES + texts + reasons
            self._running = ""
            self.revision += 1
        progress.moved(self)

    def captured(self, what: dynamo_stage.Captured, graph: int, stack: int) -> None:
        """Record what Dynamo captured, as the first stage. `stack`: the text number of the user's frame."""
        with self._lock:
            self._captured = dynamo_stage.packed(what)
            self._data = replace(self._data, stack=stack)
        self.stage(dynamo_stage.stage(what, graph))

    def guarded(self, guards: list[dynamo_stage.GuardText] | None) -> None:
        """Record the guards, after Dynamo has made them. None means that Dynamo made no guards."""
        with self._lock:
            what = replace(dynamo_stage.unpacked(self._captured), guards=guards, waiting=False)
            self._captured = dynamo_stage.packed(what)
            self._data.stages[0] = replace(self._data.stages[0], summary=dynamo_stage.summary(what))
            self.revision += 1
        progress.moved(self)

    def rows(self) -> tuple[dynamo_stage.Rows, list[str]]:
        """The rows that the compilation adds to the lists of a recording, and the texts that they refer to."""
        table = StringTable()
        with self._lock:
            captured = self._captured
        rows = dynamo_stage.rows(dynamo_stage.unpacked(captured), table) if captured else dynamo_stage.Rows()
        return rows, table.texts

    def facts(self, kept: Kept | None = None, **changes: Any) -> None:
        """Set facts about the whole compilation: `changes` are fields of CompilationData."""
        with self._lock:
            self._data = replace(self._data, **changes)
            self._kept = kept or self._kept
            self.revision += 1

    def explain(self, kind: str, message: str) -> None:
        """Replace the recorded error's type and message by those that the caller saw."""
        self._failed(f"failed: {kind}", type=kind, message=message)

    def ran_in_eager(self, reason: str, place: str) -> None:
        """Note that the caller got no error: the graph runs uncompiled, as Dynamo captured it."""
        self._failed(f"ran in eager: {reason}", message=reason, ran_in_eager=True, place=place)

    def _failed(self, summary: str, **changes: Any) -> None:
        """Change the recorded error, and the summary of the stage in which it occurred."""
        with self._lock:
            data = self._data
            if data.error is not None:
                self._data = replace(data, error=replace(data.error, **changes))
                data.stages[-1] = replace(data.stages[-1], summary=summary)
            self.revision += 1

    def read(self) -> tuple[CompilationData, list[str]]:
        """The compilation as recorded so far, with the texts that its numbers refer to. The id is left empty."""
        with self._lock:
            data, kept, captured = self._copy(), self._kept, self._captured
            graphs, rows, values = list(self._graphs), list(self._rows), list(self._values)
        table = list(chain.from_iterable(msgspec.msgpack.decode(packed, type=list[Row]) for packed in rows))
        data = replace(
            data,
            graphs=[unpacked(msgspec.msgpack.decode(packed, type=PackedGraph), table) for packed in graphs],
            values=[record for packed in values for record in msgspec.msgpack.decode(packed, type=list[ValueRecord])],
        )
        if captured:
            what = dynamo_stage.unpacked(captured)
            failed = data.error is not None and not data.error.ran_in_eager
            data = replace(data, stages=[dynamo_stage.told(data.stages[0], what, failed), *data.stages[1:]])
        texts = self._strings.texts
        if kept is not None:
            halves = Halves(kept, data.graphs, data.values, texts)
            data = replace(data, saved_tensors=halves.saved_tensors(), recomputed=halves.recomputed())
        return data, texts

    def outline(self) -> tuple[CompilationData, list[str]]:
        """Like `read`, but without graphs and values, which take time to unpack, and without what follows from them."""
        with self._lock:
            return self._copy(), self._strings.texts

    def _copy(self) -> CompilationData:
        return replace(self._data, stages=list(self._data.stages))


class Store:
    """A store of at most `max_compilations` compilations and about `max_bytes` bytes. The oldest are dropped first.

    The newest compilation is never dropped, whatever its size.

    >>> store = Store(max_compilations=1)
    >>> for name in ("f", "g"):
    ...     store.add(CompilationLog(name, {}, StringTable()))
    >>> [log.read()[0].name for _, log in store.logs()], store.dropped
    (['g'], 1)
    """

    def __init__(self, max_compilations: int = 256, max_bytes: int = 64_000_000) -> None:
        if max_compilations < 1 or max_bytes < 1:
            raise ValueError(
                f"a recording holds at least one compilation and one byte, not {max_compilations} and {max_bytes}; "
                "to record nothing, compile with record=False"
            )
        self.max_compilations = max_compilations
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._logs: list[tuple[str, CompilationLog]] = []
        self._added = 0
        self._dropped = 0

    def add(self, log: CompilationLog) -> None:
        """Add a compilation, and drop old ones if the store is full."""
        with self._lock:
            self._logs.append((str(self._added), log))
            self._added += 1
        self.trim()

    def remove(self, log: CompilationLog) -> None:
        """Remove a compilation without counting it as dropped. If it was the newest, its number is used again."""
        with self._lock:
            kept = [(number, other) for number, other in self._logs if other is not log]
            if len(kept) < len(self._logs) and self._logs[-1][1] is log:
                self._added -= 1
            self._logs = kept

    def trim(self) -> None:
        """Drop the oldest compilations until the rest fits. It is also called when a log has grown."""
        with self._lock:
            total = sum(log.nbytes for _, log in self._logs)
            drop = max(0, len(self._logs) - self.max_compilations)
            total -= sum(log.nbytes for _, log in self._logs[:drop])
            while total > self.max_bytes and drop < len(self._logs) - 1:
                total -= self._logs[drop][1].nbytes
                drop += 1
            del self._logs[:drop]
            self._dropped += drop

    @property
    def dropped(self) -> int:
        """The number of compilations that were dropped to stay within the bounds."""
        return self._dropped

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory the recording holds."""
        return sum(log.nbytes for _, log in self.logs())

    def logs(self) -> Sequence[tuple[str, CompilationLog]]:
        """(id, log) of each compilation, oldest first."""
        with self._lock:
            return tuple(self._logs)


def _told(error: ErrorRecord) -> str:
    return f"{'ran in eager' if error.ran_in_eager else error.type}: {error.message}"
