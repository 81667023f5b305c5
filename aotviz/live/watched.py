"""The log of a watched process, kept in memory instead of a file, and its view as a recording.

The lines are those that `TORCH_TRACE` would have written. The same reader reads them, so a live recording and a log
file cannot differ. Lines are stored as bytes, by compilation. When there are too many, the lines of the oldest
compilations are dropped, and these compilations are counted. Names that later lines refer to are never dropped.
`Watched` shows the log as a recording, together with what aotviz's own pipeline recorded meanwhile.

This module is thread safe, because autograd compiles backwards on its own threads while a notebook reads. It does not
import torch.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from aotviz.live.watched_progress import WatchedCompilation
from aotviz.logs.assembler import code_of, compile_id_of
from aotviz.logs.contents import Contents
from aotviz.logs.growing import GrowingLog
from aotviz.logs.read_trace import read_bytes
from aotviz.logs.resets import MARK, Resets, begins, frame_and_number, labelled
from aotviz.recording import numbers
from aotviz.recording.compilation import Compilation
from aotviz.recording.holders import Changed, Live
from aotviz.recording.log_tables import WATCHED
from aotviz.recording.noted_calls import NotedCall
from aotviz.recording.paintings import Paintings
from aotviz.recording.schema import NONE, CompilationData, RecordingData
from aotviz.recording.store import Store
from aotviz.recording.strings import StringTable, clean

BEGIN_EARLIER = (
    "To see them compiled, begin the watch before their first call, or call `torch.compiler.reset()` inside of it."
)
GLOBAL = ""  # the key of lines that belong to no compilation
NAMES = "names"  # the key of lines that others refer to: they are never dropped


class DynamosState(Protocol):
    """What is known of Dynamo while it writes a record: `Moment` in structured_trace.py, which needs torch."""

    @property
    def compilation(self) -> object: ...
    def code(self) -> int | None: ...
    def call(self) -> NotedCall | None: ...


class Stretches:
    """Find how many resets of Dynamo came before each record's compilation, in this process (see `resets.py`)."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._resets = Resets()
        self._of: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()  # Dynamo's object -> resets
        self._latest: dict[tuple[int, Hashable], int] = {}  # (thread, compile id) -> resets

    def of(self, head: dict[str, Any], payload: str | None, moment: DynamosState | None) -> int | None:
        """The number of resets before the record's compilation; None if the record needs no mark."""
        known = frame_and_number(head)
        if known is None:
            return None
        compilation, thread = moment.compilation if moment else None, threading.get_ident()
        is_begin = begins("chromium_event" if "chromium_event" in head else "", payload or "")
        is_start = not is_begin and "dynamo_start" in head and not head.get("attempt")
        code: Hashable = None
        if moment is not None and (is_begin or is_start):
            code = moment.code()
        elif is_start:
            code = code_of(head["dynamo_start"])
        with self._lock:
            if is_begin:
                found = self._resets.begun(*known, code)
            elif is_start:
                found = self._resets.started(*known, code)
            elif compilation is not None and compilation in self._of:
                found = self._of[compilation]
            else:
                found = self._latest.get((thread, known), self._resets.number)
            self._latest[thread, known] = found
            if compilation is not None:
                self._of[compilation] = found
            return found if self._resets.number else None


class Place(NamedTuple):
    """How much of a watched log was read."""

    revision: int = -1
    drops: int = 0  # how often lines were dropped before
    names: int = 0
    pieces: int = 0


class WatchedLog:
    r"""The log of one watch, of at most about `max_bytes` bytes. The newest compilation is never dropped.

    >>> log = WatchedLog(max_bytes=100)
    >>> for number in range(3):
    ...     log.receive(0.0, 7, "a.py:1", {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": number}, "x\ny")
    >>> log.dropped, [line.split("] ")[-1] for line in log.read_on(Place())[0].decode().splitlines()]
    (2, ['{"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 2}', '\tx', '\ty'])
    """

    def __init__(self, max_bytes: int = 64_000_000) -> None:
        if max_bytes < 1:
            raise ValueError(f"a watch keeps at least one byte, not {max_bytes}")
        self.max_bytes = max_bytes
        self.dropped = 0  # compilations
        self.revision = 0  # grows whenever there is more to read
        self._lock = threading.RLock()
        self._names: list[bytes] = []  # the lines that others refer to: they come first
        self._pieces: list[tuple[str, bytes]] = []
        self._nbytes: Counter[str] = Counter()  # key -> bytes, in the order of the keys' first lines
        self.nbytes = 0  # of all lines
        self._followers: tuple[Changed, ...] = ()  # replaced, never changed in place
        self._stretches = Stretches()
        self._going: dict[str, WatchedCompilation] = {}  # key -> progress of the compilation, for live views
        self._drops = 0  # how often lines were dropped
        self._second, self._stamp = 0, ""

    def receive(
        self,
        created: float,
        process: int,
        place: str,
        head: dict[str, Any],
        payload: str | None,
        moment: DynamosState | None = None,
    ) -> None:
        """Add a record: its unix time, process id, line of torch's source ("file:line"), JSON, and text."""
        reset = self._stretches.of(head, payload, moment)
        head = head if reset is None else {**head, MARK: reset}
        line = json.dumps(head, default=repr, skipkeys=True).encode()  # in the format that torch writes
        text = b"" if payload is None else b"\n\t" + clean(payload).replace("\n", "\n\t").encode()
        key = _key(head)
        with self._lock:
            piece = b"V%s %d %s] %s%s\n" % (self._when(created), process, place.encode("utf-8", "replace"), line, text)
            if key == NAMES:
                self._names.append(piece)
            else:
                self._pieces.append((key, piece))
            self._nbytes[key] += len(piece)
            self.nbytes += len(piece)
            self.revision += 1
            if self.nbytes > self.max_bytes:
                self._trim(key)
        if key not in (NAMES, GLOBAL):
            compilation = self._compilation(key, labelled(compile_id_of(head), reset or 0), created)
            if moment is not None and "dynamo_start" in head:
                compilation.call = moment.call()
            compilation.hear(created, head)
        for changed in self._followers:
            changed()

    def lines_of(self, key: str) -> bytes:
        """The lines of one compilation, and the lines that they refer to."""
        with self._lock:
            return b"".join([*self._names, *(piece for of, piece in self._pieces if of == key)])

    def calls(self) -> dict[str, NotedCall]:
        """The calls that led to the compilations, by the compilations' ids."""
        with self._lock:
            return {one.compile_id: one.call for one in self._going.values() if one.call is not None}

    def _compilation(self, key: str, compile_id: str, created: float) -> WatchedCompilation:
        known = self._going.get(key)
        return known or self._going.setdefault(
            key, WatchedCompilation(compile_id, created, partial(self.lines_of, key))
        )

    def follow(self, changed: Changed) -> Changed:
        """See `holders.Holder`."""
        with self._lock:
            self._followers = (*self._followers, changed)

        def end() -> None:
            with self._lock:
                self._followers = tuple(other for other in self._followers if other is not changed)

        return end

    def read_on(self, place: Place) -> tuple[bytes, Place]:
        """The lines that came after a place, and the place after them. It begins again if lines were dropped since."""
        with self._lock:
            _, drops, names, pieces = place if place.drops == self._drops else Place(drops=self._drops)
            lines = b"".join([*self._names[names:], *(piece for _, piece in self._pieces[pieces:])])
            return lines, Place(self.revision, drops, len(self._names), len(self._pieces))

    def _when(self, created: float) -> bytes:
        second = int(created)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%m%d %H:%M:%S", time.localtime(second))
        return b"%s.%06d" % (self._stamp.encode(), int((created - second) * 1e6))

    def _trim(self, newest: str) -> None:
        """Drop whole compilations, oldest first, until the log has at most three quarters of `max_bytes`."""
        leave = self.max_bytes * 3 // 4
        gone = set()
        for key in [key for key in self._nbytes if key not in (NAMES, GLOBAL, newest)]:
            if self.nbytes <= leave:
                break
            gone.add(key)
            self.dropped += 1
            self.nbytes -= self._nbytes.pop(key)
            self._going.pop(key, None)
        if self.nbytes > leave and newest != GLOBAL and GLOBAL in self._nbytes:
            gone.add(GLOBAL)
            self.nbytes -= self._nbytes.pop(GLOBAL)
        if gone:
            self._drops += 1
            self._pieces = [(key, piece) for key, piece in self._pieces if key not in gone]


def _key(head: dict[str, Any]) -> str:
    """The key of the compilation that a record belongs to, or NAMES or GLOBAL."""
    if "str" in head or "dump_file" in head:
        return NAMES
    found = [head.get(name) for name in ("compiled_autograd_id", "frame_id", "frame_compile_id")]
    return GLOBAL if found == [None, None, None] else "/".join(map(str, [head.get(MARK, 0), *found]))


class Watched:
    """The content of a live recording (see `holders.Holder`): torch's compilations first, then aotviz's own."""

    def __init__(self, log: WatchedLog, store: Store, producer: dict[str, str]) -> None:
        self.producer = {name: clean(version) for name, version in producer.items()}
        self._log = log
        self._own = Live(store, producer)
        self.compiled_before = 0  # functions, when the watch began
        self._read: tuple[int, Contents] | None = None  # revision, content; replaced, never changed in place
        self._readers: list[tuple[GrowingLog, Place]] = []  # one; none while a thread reads on

    @property
    def dropped(self) -> int:
        return self._log.dropped + self._own.dropped

    @property
    def paintings(self) -> Paintings:
        return self._own.paintings

    @property
    def calls(self) -> Mapping[str, NotedCall]:
        return {**self._log.calls(), **self._own.calls}

    @property
    def rows(self) -> tuple[RecordingData, Sequence[str]]:
        data, texts = self._contents().rows
        return self._with_what_came_before(replace(data, call_errors=self._own.rows[0].call_errors)), texts

    @property
    def listed(self) -> tuple[RecordingData, Sequence[str]]:
        return self.rows

    @property
    def data(self) -> RecordingData:
        found = self._contents().data
        table = StringTable(found.strings)
        own = [numbers.changed(one.data, [*map(table.add, one.strings), NONE]) for one in self._own]
        return replace(
            found,
            compilations=[*found.compilations, *own],
            strings=table.texts,
            producer=self.producer,
            dropped=self.dropped,
            call_errors=self._own.rows[0].call_errors,
            notes=self._with_what_came_before(found).notes,
        )

    @property
    def revision(self) -> Hashable:
        return self._log.revision, self._own.revision, self.compiled_before

    def _with_what_came_before(self, data: RecordingData) -> RecordingData:
        """With a note, where nothing was compiled because all had been compiled before."""
        if not self.compiled_before or len(self):
            return data
        many = f"{self.compiled_before} function{' was' if self.compiled_before == 1 else 's were'}"
        return replace(data, notes=[*data.notes, f"{many} compiled before the watch began. {BEGIN_EARLIER}"])

    def follow(self, changed: Changed) -> Changed:
        ends = (self._log.follow(changed), self._own.follow(changed))

        def end() -> None:
            for stop in ends:
                stop()

        return end

    def __len__(self) -> int:
        return len(self._contents()) + len(self._own)

    def __iter__(self) -> Iterator[Compilation]:
        return chain(self._contents(), self._own)

    def _contents(self) -> Contents:
        """The content of the current lines."""
        known = self._read
        if known is None or known[0] != self._log.revision:
            known = self._read = self._read_on()
        return known[1]

    def _read_on(self) -> tuple[int, Contents]:
        """Read what is new. Without a lock (Note [Locks] in pipeline.py): a second thread reads all from the start."""
        try:
            reader, place = self._readers.pop()
        except IndexError:
            reader, place = GrowingLog(WATCHED), Place()
        lines, after = self._log.read_on(place)
        if after.drops != place.drops:
            reader = GrowingLog(WATCHED)
        reader.add(lines)
        found = with_notes(reader.contents(), self._log.dropped)
        self._readers[:] = [(reader, after)]
        return after.revision, found


def read_lines(lines: bytes) -> Contents:
    """Read log lines from memory, and add notes about compilations that the lines do not include."""
    return with_notes(read_bytes([lines], WATCHED), dropped=0)


def with_notes(found: Contents, dropped: int) -> Contents:
    """With a note for each function whose earlier compilations are not there."""
    notes = unseen(found.outline.compilations, dropped)
    return Contents(replace(found.outline, notes=[*found.outline.notes, *notes]), found.texts)


def unseen(compilations: Iterable[CompilationData], dropped: int) -> list[str]:
    """A note for each function whose earlier compilations the watch did not see."""
    seen: dict[int, dict[int, str]] = defaultdict(dict)  # function -> number of the compilation -> its id
    for compilation in compilations:
        number = compilation.compile_id.rpartition("/")[2]
        if number.isdecimal():
            seen[compilation.frame][int(number)] = compilation.id
    notes = []
    for ids in seen.values():
        frame = next(iter(ids.values())).rpartition("/")[0]
        missing = [f"{frame}/{number}" for number in range(max(ids)) if number not in ids]
        if missing:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            was, their = ("was", "its") if len(missing) == 1 else ("were", "their")
            when = "before the watch began, or dropped since" if dropped else "before the watch began"
            notes.append(f"{shown} {was} compiled {when}: {their} graphs and guards are not known")
    return notes
