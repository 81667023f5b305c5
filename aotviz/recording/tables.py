"""The records of a recording as pandas tables.

Column names contain their units. Sizes are in elements, and symbolic sizes are texts. A table has its columns with
their types even when it has no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from aotviz.recording.frozen import Frozen
from aotviz.recording.saved import cost
from aotviz.recording.schema import (
    AliasTensor,
    CompilationData,
    RunEvent,
    RunLog,
    SavedTensorRecord,
    StageRecord,
    StorageRecord,
    StorageWrite,
)

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, tuple[str | None, Callable[[Any], Any]]]  # name -> its dtype, and how a thing's cell is read
DTYPES = {"int": "int64", "int | None": "Int64", "int | str": "object", "bool": "bool"}  # by the annotation of a field

STAGES: Columns = {
    "number": ("int64", lambda ran: ran.number),
    "stage": ("str", lambda ran: ran.stage.name),
    "form": ("str", lambda ran: ran.stage.form),
    "changed": ("bool", lambda ran: ran.stage.changed),
    "summary": ("str", lambda ran: ran.stage.summary),
    "started_ms": ("float64", lambda ran: ran.stage.started_ns / 1e6),
    "elapsed_ms": ("float64", lambda ran: ran.stage.elapsed_ns / 1e6),
    "nodes_before": ("int64", lambda ran: sum(ran.before.values())),
    "nodes_after": ("int64", lambda ran: sum(ran.after.values())),
    "graphs": ("str", lambda ran: ", ".join(f"{role} {ran.after[role]}" for role in ran.stage.graphs)),
    "evidence": ("int64", lambda ran: len(ran.stage.evidence)),
    "late": ("bool", lambda ran: ran.stage.late),
    "replayed": ("bool", lambda ran: ran.stage.replayed),
}
EVIDENCE: Columns = {  # of (stage, reason)
    "stage": ("str", lambda row: row[0].name),
    "subject": ("str", lambda row: row[1].subject),
    "reason": ("str", lambda row: row[1].reason),
}
STORAGE: Columns = {
    "storage": ("int64", lambda inside: inside.number),
    "tensor": ("int64", lambda inside: inside.place),
    "nbytes": ("Int64", lambda inside: inside.storage.nbytes),
    "device": ("str", lambda inside: inside.storage.device),
}


class Ran(NamedTuple):
    """A stage that ran, with the number of nodes of each graph before and after it, by role."""

    number: int
    stage: StageRecord
    before: dict[str, int]
    after: dict[str, int]


class Inside(NamedTuple):
    """A tensor of a storage, or a write to it."""

    number: int
    storage: StorageRecord
    place: int
    record: Frozen


def attributes(**dtypes: str) -> Columns:
    """Columns that are attributes of a thing, by their dtypes."""
    return {name: (dtype, attrgetter(name)) for name, dtype in dtypes.items()}


def table(columns: Columns, things: Iterable[Any]) -> pd.DataFrame:
    """One row for each thing. A column without a dtype has texts or tuples."""
    import pandas as pd  # imported here because it takes half a second, and only tables need it

    rows, series = list(things), {}
    index = pd.RangeIndex(len(rows))
    for name, (dtype, read) in columns.items():
        cells = [read(thing) for thing in rows]
        kind: Any = dtype or ("object" if any(isinstance(cell, tuple) for cell in cells) else "str")
        series[name] = pd.Series(cells, index=index, dtype=kind)
    return pd.DataFrame(series, index=index, copy=False)


def records(kind: type[Frozen], found: Sequence[Frozen], names: Mapping[str, str] | None = None) -> pd.DataFrame:
    """One row per record, in the order of the recording. `names` are those of columns that differ from the field's."""
    columns = _fields(kind, lambda record: record)
    return table({(names or {}).get(field, field): column for field, column in columns.items()}, found)


def stages(data: CompilationData) -> pd.DataFrame:
    """One row per stage that ran, in the order in which they ended."""
    return table(STAGES, ran(data)).set_index("number")


def ran(data: CompilationData) -> Iterator[Ran]:
    before: dict[str, int] = {}
    for number, stage in enumerate(data.stages):
        after = {role: len(data.graphs[index].op) for role, index in stage.graphs.items()} or before
        yield Ran(number, stage, before, after)
        before = after


def saved_tensors(found: Sequence[SavedTensorRecord]) -> pd.DataFrame:
    """One row per value saved for the backward. `saved_bytes` and `held_bytes` are missing if a size is symbolic.

    `saved_bytes` is the size of the value's elements. The sum of `held_bytes` is the memory that stays allocated.
    `varying_dims` are the dimensions whose size is symbolic. They are marked as such, so that a captured backward, or a
    compiled unpack hook, has them symbolic from the first time.
    """
    costs = [replace(one, held_bytes=cost(one), held_until=max(one.held_until, one.dies_at)) for one in found]
    rows = records(SavedTensorRecord, costs, names={"nbytes": "saved_bytes"})
    varying = table({"varying_dims": ("object", _varying)}, found)["varying_dims"]
    rows.insert(list(rows.columns).index("shape") + 1, "varying_dims", varying)
    return rows


def _varying(saved: SavedTensorRecord) -> tuple[int, ...]:
    return tuple(dim for dim, size in enumerate(saved.shape) if isinstance(size, str))


def storages(data: CompilationData) -> pd.DataFrame:
    """One row per tensor of the workbench's Aliasing view; `view_of` is an index among the tensors of its storage."""
    return _in_storages(data, AliasTensor, "tensors")


def writes(data: CompilationData) -> pd.DataFrame:
    """One row per write, in the user's order; `tensor` is an index among the tensors of its storage."""
    return _in_storages(data, StorageWrite, "writes").sort_values("order", ignore_index=True)


def events(data: CompilationData, strings: Sequence[str]) -> pd.DataFrame:
    """One row per thing that the function did, in the order of the user's statements."""
    run = data.run or RunLog([], [])

    def text(number: int) -> str:
        return strings[number] if number >= 0 else ""

    def tensor(number: int) -> str:
        return (text(run.tensors[number]) or f"tensor {number}") if number >= 0 else ""

    def made(event: RunEvent) -> str:
        return "; ".join(": ".join(filter(None, map(text, (one.subject, one.fact, one.text)))) for one in event.made)

    columns: Columns = {
        "what": ("str", lambda event: text(event.what)),
        "tensor": ("str", lambda event: tensor(event.tensor)),
        "of": ("str", lambda event: tensor(event.of)),
        "operator": ("str", lambda event: text(event.operator)),
        "mode": ("str", lambda event: text(event.mode)),
        "made": ("str", made),
        "source": ("str", lambda event: text(event.source)),
        "node": ("str", lambda event: text(event.node)),
        "tensor_number": ("int64", lambda event: event.tensor),
        "of_number": ("int64", lambda event: event.of),
    }
    return table(columns, run.events)


def evidence(data: CompilationData) -> pd.DataFrame:
    """One row per reason that a stage gave."""
    return table(EVIDENCE, ((stage, reason) for stage in data.stages for reason in stage.evidence))


def _in_storages(data: CompilationData, kind: type[Frozen], field: str) -> pd.DataFrame:
    rows = (
        Inside(number, storage, place, record)
        for number, storage in enumerate(data.storages)
        for place, record in enumerate(getattr(storage, field))
    )
    return table({**STORAGE, **_fields(kind, lambda inside: inside.record)}, rows)


def _fields(kind: type[Frozen], record: Callable[[Any], Any]) -> Columns:
    """The columns of a record's fields. `record` gets the record from what stands for a row."""

    def reader(field: str) -> Callable[[Any], Any]:
        return lambda row: cell(getattr(record(row), field))

    return {field: (DTYPES.get(kind.__annotations__[field]), reader(field)) for field in kind.__struct_fields__}


def cell(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
