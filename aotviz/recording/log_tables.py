"""The rows from torch's logs as pandas tables, for every list of rows in a recording.

The first columns say where a row comes from: `compilation` (the id in the recording), `rank`, `attempt`, `log`
(the file) and `line`, and `time` (when the line was written). Text numbers become texts, and lists become tuples. A
table has its columns even when it has no rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from aotviz.recording.events import (
    EventTable,
    FailedGuard,
    LogRecord,
    MetricsRecord,
    Origin,
    RecompileReason,
    RecordingData,
    Text,
)

if TYPE_CHECKING:
    import pandas as pd

WHENCE = ("compilation", "rank", "attempt", "log", "line", "time")
LISTS: dict[str, type[msgspec.Struct]] = {
    field: hint.__args__[0]
    for field, hint in get_type_hints(RecordingData, include_extras=True).items()
    if "origin" in getattr(getattr(hint, "__args__", [None])[0], "__struct_fields__", ())
}  # the types of rows that have an origin, by the name of their list


def rows(data: RecordingData, strings: Sequence[str], field: str) -> pd.DataFrame:
    """One row per record of the list `field` of `data` (for "recompiles", one row per reason)."""
    if field == "recompiles":
        return _recompiles(data, strings)
    if field == "metrics":
        return _metrics(data, strings)
    kind = LISTS[field]
    whence = _Whence(data)
    names = [name for name in kind.__struct_fields__ if name != "origin"]
    hints = get_type_hints(kind, include_extras=True)
    records: list[Any] = getattr(data, field)
    columns = whence.columns([record.origin for record in records])
    for name in names:
        read = _reader(hints[name], strings)
        columns[name] = [read(getattr(record, name)) for record in records]
    return _frame(columns)


def logs(data: RecordingData) -> pd.DataFrame:
    """One row per log file."""
    columns: dict[str, list[Any]] = {name: [] for name in LogRecord.__struct_fields__}
    for log in data.logs:
        for name, column in columns.items():
            value = getattr(log, name)
            column.append(tuple((bad.line, bad.reason) for bad in value) if name == "bad" else _plain(value))
    return _frame(columns)


def events(data: RecordingData, strings: Sequence[str]) -> pd.DataFrame:
    """One row per event of the timeline; `parent` is a row number."""
    table = data.events
    whence = _Whence(data)
    columns: dict[str, list[Any]] = {
        "compilation": [whence.id(number) for number in table.compilation],
        "rank": [whence.rank(*row) for row in zip(table.log, table.compilation, strict=True)],
        "log": [whence.log(log) for log in table.log],
    }
    for name in EventTable.__struct_fields__:
        if name in ("name", "args"):
            columns[name] = [strings[number] if number >= 0 else "" for number in getattr(table, name)]
        elif name not in columns:
            columns[name] = getattr(table, name)
    return _frame({name: columns.pop(name) for name in ("name", "start_us", "duration_us")} | columns)


def _recompiles(data: RecordingData, strings: Sequence[str]) -> pd.DataFrame:
    """One row per reason: a compilation that did not match three earlier ones has three rows."""
    pairs = [(record.origin, reason) for record in data.recompiles for reason in record.reasons]
    columns = _Whence(data).columns([origin for origin, _ in pairs])
    for name, hint in get_type_hints(RecompileReason, include_extras=True).items():
        read = _reader(hint, strings)
        columns[name] = [read(getattr(reason, name)) for _, reason in pairs]
    return _frame(columns)


def _metrics(data: RecordingData, strings: Sequence[str]) -> pd.DataFrame:
    """One row per record, with a column for each number that torch reports."""
    columns = _Whence(data).columns([record.origin for record in data.metrics])
    for name, hint in get_type_hints(MetricsRecord, include_extras=True).items():
        if name not in ("origin", "numbers", "texts"):
            read = _reader(hint, strings)
            columns[name] = [read(getattr(record, name)) for record in data.metrics]
    for name in dict.fromkeys(name for record in data.metrics for name in record.numbers):
        columns[name] = [record.numbers.get(name) for record in data.metrics]
    columns["texts"] = [_mapping(record.texts, strings) for record in data.metrics]
    return _frame(columns)


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


def _reader(hint: Any, strings: Sequence[str]) -> Any:
    if hint == Text:
        return lambda number: strings[number] if number >= 0 else ""
    if hint == list[Text]:
        return lambda numbers: tuple(strings[number] if number >= 0 else "" for number in numbers)
    if hint == list[FailedGuard]:
        return lambda guards: tuple(strings[guard.guard] for guard in guards)
    if hint == dict[str, Text]:
        return lambda named: _mapping(named, strings)
    return _plain


def _mapping(named: Mapping[str, int], strings: Sequence[str]) -> dict[str, str]:
    return {name: strings[number] if number >= 0 else "" for name, number in named.items()}


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _frame(columns: dict[str, list[Any]]) -> pd.DataFrame:
    import pandas as pd  # imported here because it takes half a second, and only tables need it

    series = {}
    for name, column in columns.items():
        held = any(isinstance(cell, (tuple, dict)) for cell in column)
        series[name] = pd.Series(column, dtype="object" if held or not column else None)
    return pd.DataFrame(series)
