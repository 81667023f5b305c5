"""What a log consists of while it is being read: streams, their compilations, and the places of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from aotviz.logs import stacks
from aotviz.logs.resets import Resets
from aotviz.recording.captured_visits import Done
from aotviz.recording.schema import NONE, BadLine, ErrorRecord, Origin
from aotviz.recording.strings import clean

MOST_BAD_LINES = 100  # of one log that are kept with their reason; the others are only counted


@dataclass
class Log:
    """One log file while it is being read."""

    name: str
    rank: int  # in the file's name, or -1
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
    logs_result: bool = False  # of an export: whether it logs its program, as with TORCH_DTRACE
    finished: bool = False  # of an export: whether its program was logged
    called: str = ""  # what the recording calls it, if that is not its compile id
    sizes: dict[str, int] = field(default_factory=dict)  # of each symbol


@dataclass
class Open:
    """The entry point whose records are read now."""

    compilation: Compilation
    call: tuple[object, ...]  # the frames down to the entry point
    timed: bool = False  # whether its first event was read
    ended: bool = False  # whether its last event was read
    describer: object = None  # of the inputs' descriptions: each export has its own
    fresh: bool = False  # whether torch has said that an export begins, and nothing else yet
    capturing: bool = False  # whether Dynamo captures a graph for it now
    captured: str = ""  # Dynamo's id of that capture
    first: str = ""  # the kind of its first record, where another such record begins another call


@dataclass
class Stream:
    """A process with its rank, if it has one."""

    number: int
    log: Log
    process: int
    rank: int
    files: stacks.Files  # torch's number -> file name
    compilations: dict[tuple[int, str], Compilation] = field(default_factory=dict)  # by reset and compile id
    latest: dict[str, Compilation] = field(default_factory=dict)  # by compile id, the last that began
    resets: Resets = field(default_factory=Resets)
    sources: dict[tuple[Any, Any], list[int]] = field(default_factory=dict)  # of described tensors
    entry: Open | None = None  # the entry point of the latest record without a compile id
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
        return Origin(0, self.line, number, self.attempt, self.unix_ns)
