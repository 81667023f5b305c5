"""The rows from torch's logs as pandas tables, for every list of rows in a recording.

The first columns say where a row comes from: `compilation` (the id in the recording), `rank`, `attempt`, `log`
(the file) and `line`, and `time` (when the line was written). Text numbers become texts, and lists become tuples. A
table has its columns even when it has no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from aotviz.recording.schema import (
    BadLine,
    FailedGuard,
    KeyDifference,
    LogRecord,
    Origin,
    RecompileReason,
    RecordingData,
    Text,
)
from aotviz.recording.tables import cell

if TYPE_CHECKING:
    import pandas as pd

WATCHED = "this process"  # the name of a watch among the logs
WHENCE = ("compilation", "rank", "attempt", "log", "line", "time")
LISTS: dict[str, type[msgspec.Struct]] = {
    field: hint.__args__[0]
    for field, hint in get_type_hints(RecordingData, include_extras=True).items()
    if "origin" in getattr(getattr(hint, "__args__", [None])[0], "__struct_fields__", ())
}  # the types of rows that have an origin, by the name of their list


def rows(data: RecordingData, strings: Sequence[str], field: str) -> pd.DataFrame:
    """One row per record of the list `field` of `data`.

    For "recompiles", one row per reason: a compilation that did not match three earlier ones has three rows. For
    "metrics", a column for each number that torch reports.
    """
    kind, found = LISTS[field], [(record.origin, record) for record in getattr(data, field)]
    if field == "recompiles":
        kind, found = RecompileReason, [(origin, reason) for origin, record in found for reason in record.reasons]
    columns = _Whence(data).columns([origin for origin, _ in found])
    columns |= _read(kind, [row for _, row in found], strings)
    if field == "metrics":
        for name in dict.fromkeys(name for numbers in columns.pop("numbers") for name in numbers):
            columns[name] = [record.numbers.get(name) for record in data.metrics]
        columns["texts"] = columns.pop("texts")  # the last column
    return _frame(columns)


def logs(data: RecordingData) -> pd.DataFrame:
    """One row per log file."""
    return _frame(_read(LogRecord, data.logs, ()))


def bad_lines(data: RecordingData) -> list[str]:
    """One sentence for each log with lines that could not be read."""
    told = []
    for log in data.logs:
        if log.bad_lines:
            first = f"line {log.bad[0].line}: {log.bad[0].reason}" if log.bad else "see `recording.logs`"
            many = "1 line is" if log.bad_lines == 1 else f"{log.bad_lines} lines are"
            told.append(f"{many} damaged in {log.name} ({first}); the rest was read.")
    return told


def events(data: RecordingData, strings: Sequence[str]) -> pd.DataFrame:
    """One row per event of the timeline; `parent` is a row number."""
    table, whence = data.events, _Whence(data)
    text = _reader(Text, strings)
    return _frame(
        {
            "name": list(map(text, table.name)),
            "start_us": table.start_us,
            "duration_us": table.duration_us,
            "compilation": list(map(whence.id, table.compilation)),
            "rank": list(map(whence.rank, table.log, table.compilation)),
            "log": list(map(whence.log, table.log)),
            "parent": table.parent,
            "line": table.line,
            "thread": table.thread,
            "args": list(map(text, table.args)),
        }
    )


class _Whence:
    """The columns that say where a row comes from. Indices of logs and compilations become names, ids and ranks."""

    def __init__(self, data: RecordingData) -> None:
        self._logs = data.logs
        self._compilations = data.compilations

    def id(self, compilation: int) -> str:
        return self._compilations[compilation].id if compilation >= 0 else ""

    def rank(self, log: int, compilation: int) -> int:
        """The compilation's rank if it is known, else the log's: several ranks may have written to one log."""
        if compilation >= 0 and self._compilations[compilation].rank >= 0:
            return self._compilations[compilation].rank
        return self._logs[log].rank if log >= 0 else -1

    def log(self, log: int) -> str:
        return self._logs[log].name if log >= 0 else ""

    def columns(self, origins: list[Origin]) -> dict[str, list[Any]]:
        import pandas as pd  # imported here because it takes half a second, and only tables need it

        return {
            "compilation": [self.id(origin.compilation) for origin in origins],
            "rank": [self.rank(origin.log, origin.compilation) for origin in origins],
            "attempt": [origin.attempt for origin in origins],
            "log": [self.log(origin.log) for origin in origins],
            "line": [origin.line for origin in origins],
            "time": [pd.Timestamp(origin.unix_ns) if origin.unix_ns > 0 else pd.NaT for origin in origins],
        }


def _read(kind: type[msgspec.Struct], records: Sequence[Any], strings: Sequence[str]) -> dict[str, list[Any]]:
    """The fields of records as columns, except for the origin."""
    readers = {name: _reader(hint, strings) for name, hint in get_type_hints(kind, include_extras=True).items()}
    return {
        name: [read(getattr(record, name)) for record in records] for name, read in readers.items() if name != "origin"
    }


def _reader(hint: Any, strings: Sequence[str]) -> Callable[[Any], Any]:
    def text(number: int) -> str:
        return strings[number] if number >= 0 else ""

    if hint == Text:
        return text
    if hint == list[Text]:
        return lambda numbers: tuple(map(text, numbers))
    if hint == list[FailedGuard]:
        return lambda guards: tuple(text(guard.guard) for guard in guards)
    if hint == list[KeyDifference]:
        return lambda found: tuple((one.name, text(one.before), text(one.after)) for one in found)
    if hint == list[BadLine]:
        return lambda lines: tuple((line.line, line.reason) for line in lines)
    if hint == dict[str, Text]:
        return lambda named: {name: text(number) for name, number in named.items()}
    return cell


def _frame(columns: dict[str, list[Any]]) -> pd.DataFrame:
    import pandas as pd  # imported here because it takes half a second, and only tables need it

    series = {}
    for name, column in columns.items():
        held = any(isinstance(cell, (tuple, dict)) for cell in column)
        series[name] = pd.Series(column, dtype="object" if held or not column else None)
    return pd.DataFrame(series)
