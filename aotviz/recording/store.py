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
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from aotviz.ir.lookup import LookUp, Outcome
from aotviz.recording import dynamo_stage, own_lookups, progress, replaying
from aotviz.recording.node_arguments import PackedGraph, Row
from aotviz.recording.noted_calls import NotedCall
from aotviz.recording.paintings import Paintings
from aotviz.recording.progress import Progress
from aotviz.recording.saved import Kept
from aotviz.recording.schema import (
    NONE,
    VERSION,
    CallError,
    CompilationData,
    ErrorRecord,
    ReplayRecord,
    StageRecord,
    ValueRecord,
    WrapperRecord,
)
from aotviz.recording.strings import StringTable

if TYPE_CHECKING:
    from aotviz.recording.compilation import LiveProgram

STRING_OVERHEAD_BYTES = 150  # of Python objects, for each text in a StringTable
STAGE_BYTES = 2_000  # estimate for one StageRecord without its texts
MOST_ERRORS = 20  # of calls
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
        self._lock = threading.RLock()
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
        self._dynamo = ""  # a digest of Dynamo's graph
        self._captured = b""  # a packed dynamo_stage.Captured
        self._packed_bytes = 0
        self._stage_bytes = 0
        self.most_nodes = 0  # of the largest graph
        self._running = ""  # the stage that is running
        self._is_over = False
        self.call: NotedCall | None = None  # that led to it
        self.live_program: LiveProgram | None = None  # None without a joint graph
        self._lookups: list[own_lookups.Asked] = []
        self._replay: replaying.Packed | None = None  # from the cache's entry
        self._parts: list[replaying.Part] | None = None  # the same, once somebody has read it
        self._replayed_after = 0  # stages of this process
        self._merging = threading.RLock()
        self._merged = StringTable()  # the texts of a replayed compilation; it only grows
        self.revision = 0  # grows whenever there is more to read
        self._number = progress.begun(self)

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory this log holds."""
        data = self._data
        rows = len(data.inputs) + len(data.outputs) + sum(2 + len(visit.steps) for visit in data.visits)
        rows += len(self._kept.saved) + len(self._kept.recomputed) if self._kept else 0
        rows += sum(len(storage.tensors) + len(storage.writes) for storage in data.storages)
        rows += len(data.run.events) if data.run else 0
        texts = self._strings.characters + STRING_OVERHEAD_BYTES * len(self._strings.texts)
        wrapper = len(data.wrapper.source) if data.wrapper else 0
        others = sum(map(len, self._replay.parts)) + replaying.nbytes(self._parts or ()) if self._replay else 0
        others += sum(asked.nbytes for asked in self._lookups) + len(self._captured) + self._merged.characters
        return self._packed_bytes + self._stage_bytes + texts + wrapper + ROW_BYTES * rows + others

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
            head = self._replay.head if self._replay is not None else None
            state: progress.State = "paused"
            if error is not None:
                state = "failed"
            elif running or self._is_over:
                state = "running" if running else "done"
            return Progress(
                number=self._number,
                name=data.name,
                kind=head.kind if head is not None else data.kind,
                state=state,
                stage=running or (error.stage if error else data.stages[-1].name if data.stages else ""),
                stages=sum(stage.name != replaying.GIVEN for stage in data.stages) + (head.stages if head else 0),
                elapsed_ns=sum(stage.elapsed_ns for stage in data.stages),
                started_unix_ns=data.started_unix_ns,
                error=_told(error) if error else "",
                from_cache=data.replayed is not None,
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

    def captured(self, what: dynamo_stage.Captured, graph: int, stack: int, digest: str = "") -> None:
        """Record what Dynamo captured, as the first stage. `stack`: the text number of the user's frame.

        `graph` is NONE if the graph is that of the cache's entry; `digest` is a digest of it.
        """
        with self._lock:
            self._dynamo = digest
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

    def looked_up(self, lookup: LookUp, unix_ns: int) -> None:
        """Record the answer of aotviz's cache. It replaces an earlier one, but not a hit."""
        with self._lock:
            asked = own_lookups.Asked(lookup, unix_ns)
            known = self._data.cache
            if known is not None and known.outcome == Outcome.HIT.value:
                self._lookups.append(asked)
            else:
                self._data = replace(self._data, cache=own_lookups.answer(lookup))
                self._lookups = [asked]
            if self._data.replayed is not None:
                note = self._data.replayed.note
                self._data = replace(self._data, replayed=own_lookups.replay(self._lookups, note))
            self.revision += 1

    def replayed(self, packed: replaying.Packed | None, note: str, wrapper: WrapperRecord | None) -> None:
        """The cache had the program, and `packed`: what `recorded` returned when it was compiled.

        It is unpacked when it is read. `wrapper` is shown if that fails; `note` says why there is nothing.
        """
        with self._lock:
            self._data = replace(self._data, replayed=own_lookups.replay(self._lookups, note), wrapper=wrapper)
            self._replay, self._replayed_after = packed, len(self._data.stages)
            if packed is not None:
                self.most_nodes = max(self.most_nodes, packed.head.most_nodes)
            self.revision += 1

    def recorded(self) -> bytes | None:
        """The compilation as recorded so far, for the cache's entry; None if it was replayed without its stages."""
        with self._lock:
            own, packed, first = self._own(), self._replay, self._replayed_after
            if own.data.replayed is not None and packed is None:
                return None
            stages = replaying.without_dynamo(own.data.stages[first:])
            head = replaying.Head(VERSION, own.data.kind, 0, self.most_nodes, self._dynamo)
        earlier: Sequence[bytes] = ()
        if packed is not None:
            head, earlier = packed.head, packed.parts
            new = set(replaying.late(stages)) - set(head.late)  # what the entry has not
            stages = stages if new else []
        late = [*head.late, *replaying.late(stages)]
        head = replace(head, stages=head.stages + len(stages), late=list(dict.fromkeys(late)))
        return replaying.pack(head, earlier, replaying.trimmed(own, stages) if stages else None)

    def rows(self) -> tuple[dynamo_stage.Rows, list[str]]:
        """The rows that the compilation adds to the lists of a recording, and the texts that they refer to."""
        table = StringTable()
        with self._lock:
            captured, lookups = self._captured, list(self._lookups)
        rows = dynamo_stage.rows(dynamo_stage.unpacked(captured), table) if captured else dynamo_stage.Rows()
        rows = replace(rows, cache_lookups=[asked.row(table.add) for asked in lookups])
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
            own, captured, first = self._own(), self._captured, self._replayed_after
        texts = own.texts
        data = self._with_replayed(lambda parts: replaying.merged(parts, own, first, self._merged))
        if data is not None:
            texts = self._merged.texts
        else:
            with self._lock:
                own = self._own()
            data = replaying.alone(own)
        if captured:
            what = dynamo_stage.unpacked(captured)
            failed = data.error is not None and not data.error.ran_in_eager
            data = replace(data, stages=[dynamo_stage.told(data.stages[0], what, failed), *data.stages[1:]])
        return data, texts

    def outline(self) -> tuple[CompilationData, list[str]]:
        """Like `read`, but without graphs and values, which take time to unpack, and without what follows from them."""
        with self._lock:
            own, first = self._own(), self._replayed_after
        data = self._with_replayed(lambda parts: replaying.outline(parts, own, first, self._merged))
        if data is not None:
            return data, self._merged.texts
        with self._lock:
            return self._own().data, own.texts

    def _own(self) -> replaying.Part:
        """What this process recorded."""
        data = replace(self._data, stages=list(self._data.stages))
        tables = list(self._graphs), list(self._rows), list(self._values)
        first = data.stages[0].graphs.get(dynamo_stage.ROLE, NONE) if self._captured else NONE
        return replaying.Part(data, *tables, self._kept, self._strings.texts, first)

    def _with_replayed(self, told: Callable[[list[replaying.Part]], CompilationData]) -> CompilationData | None:
        """What is `told` of the parts from the cache; None without such parts, or if they cannot be read."""
        packed = self._replay
        if packed is None:
            return None
        with self._merging:
            try:
                self._parts = self._parts or replaying.parts_of(packed)
                return told(self._parts)
            except replaying.Unreadable as error:
                note = str(error)
        with self._lock:
            self._replay = self._parts = None
            known = self._data.replayed or ReplayRecord("", 0, 0.0)
            self._data = replace(self._data, replayed=replace(known, note=note))
            self.revision += 1
        return None


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
        self.paintings = Paintings()
        self.call_errors: tuple[CallError, ...] = ()  # the first few
        self._lock = threading.RLock()
        self._logs: list[tuple[str, CompilationLog]] = []
        self._added = 0
        self.dropped = 0
        """The number of compilations that were dropped to stay within the bounds."""

    def add(self, log: CompilationLog) -> None:
        """Add a compilation, and drop old ones if the store is full."""
        with self._lock:
            self._logs.append((str(self._added), log))
            self._added += 1
        self.trim()

    def raised(self, error: CallError) -> None:
        """Keep an error of a call. One that is raised through several blocks is kept once."""
        with self._lock:
            known = [(one.type, one.message) for one in self.call_errors]
            if (error.type, error.message) not in known and len(known) < MOST_ERRORS:
                self.call_errors = (*self.call_errors, error)

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
            drop = max(0, len(self._logs) - self.max_compilations)
            total = sum(log.nbytes for _, log in self._logs[drop:])
            while total > self.max_bytes and drop < len(self._logs) - 1:
                total -= self._logs[drop][1].nbytes
                drop += 1
            gone, self._logs = self._logs[:drop], self._logs[drop:]
            self.dropped += drop
        del gone  # after the lock: it may be the last to hold a program, and so the user's objects

    def logs(self) -> Sequence[tuple[str, CompilationLog]]:
        """(id, log) of each compilation, oldest first."""
        with self._lock:
            return tuple(self._logs)


def _told(error: ErrorRecord) -> str:
    return f"{'ran in eager' if error.ran_in_eager else error.type}: {error.message}"
