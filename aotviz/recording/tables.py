"""The records of a recording as pandas tables, one function per table.

Column names contain their units. Sizes are in elements, and symbolic sizes are texts. A table has its columns with
their types even when it has no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from aotviz.recording.events import (
    AliasTensor,
    CompilationData,
    Frozen,
    InputRecord,
    OutputRecord,
    RecomputedRecord,
    SavedTensorRecord,
    StorageWrite,
    VisitRecord,
)
from aotviz.recording.saved import cost

if TYPE_CHECKING:
    import pandas as pd

BOOLS = frozenset({"bool"})


def stages(data: CompilationData) -> pd.DataFrame:
    """One row per stage that ran, in the order in which they ended."""
    rows = []
    before: dict[str, int] = {}
    for number, stage in enumerate(data.stages):
        after = {role: len(data.graphs[index].op) for role, index in stage.graphs.items()} or before
        rows.append(
            {
                "stage": stage.name,
                "form": stage.form,
                "changed": stage.changed,
                "summary": stage.summary,
                "started_ms": stage.started_ns / 1e6,
                "elapsed_ms": stage.elapsed_ns / 1e6,
                "nodes_before": sum(before.values()),
                "nodes_after": sum(after.values()),
                "graphs": ", ".join(f"{role} {count}" for role, count in after.items()) if stage.graphs else "",
                "evidence": len(stage.evidence),
                "late": stage.late,
                "number": number,
            }
        )
        before = after
    types = {
        "changed": "bool",
        "late": "bool",
        "started_ms": "float64",
        "elapsed_ms": "float64",
        "nodes_before": "int64",
        "nodes_after": "int64",
        "evidence": "int64",
        "number": "int64",
    }
    names = "stage form changed summary started_ms elapsed_ms nodes_before nodes_after graphs evidence late number"
    return _frame(names.split(), rows, types).set_index("number")


def inputs(records: Sequence[InputRecord]) -> pd.DataFrame:
    """One row per flat input, in the user's order."""
    return _records(InputRecord, records)


def outputs(records: Sequence[OutputRecord]) -> pd.DataFrame:
    """One row per flat output, in the user's order."""
    return _records(OutputRecord, records)


def saved_tensors(records: Sequence[SavedTensorRecord]) -> pd.DataFrame:
    """One row per value saved for the backward. `saved_bytes` and `held_bytes` are missing if a size is symbolic.

    `saved_bytes` is the size of the value's elements. The sum of `held_bytes` is the memory that stays allocated.
    """
    types = {"saved_bytes": "Int64", "dies_at": "int64", "held_bytes": "Int64", "held_until": "int64"}
    records = [
        replace(record, held_bytes=cost(record), held_until=max(record.held_until, record.dies_at))
        for record in records
    ]
    return _records(SavedTensorRecord, records, rename={"nbytes": "saved_bytes"}, types=types)


def recomputed(records: Sequence[RecomputedRecord]) -> pd.DataFrame:
    """One row per value that the backward recomputes; `nbytes` is missing if a size is symbolic."""
    types = {"nbytes": "Int64", "made_at": "int64", "dies_at": "int64"}
    return _records(RecomputedRecord, records, types=types)


def storages(data: CompilationData) -> pd.DataFrame:
    """One row per tensor of the workbench's Aliasing view; `view_of` is an index among the tensors of its storage."""
    return _rows_of_storages(data, AliasTensor, "tensors")


def writes(data: CompilationData) -> pd.DataFrame:
    """One row per write, in the user's order; `tensor` is an index among the tensors of its storage."""
    return _rows_of_storages(data, StorageWrite, "writes").sort_values("order", ignore_index=True)


def _rows_of_storages(data: CompilationData, record: type[Frozen], name: str) -> pd.DataFrame:
    rows = [
        {"storage": number, "tensor": index, "nbytes": storage.nbytes, "device": storage.device}
        | {field: _cell(cell) for field, cell in asdict(row).items()}
        for number, storage in enumerate(data.storages)
        for index, row in enumerate(getattr(storage, name))
    ]
    kinds = {"storage": "int", "tensor": "int", "nbytes": "int | None", "device": "str", **record.__annotations__}
    types = {"int": "int64", "int | None": "Int64", "int | str": "object", "bool": "bool"}
    return _frame(list(kinds), rows, {field: types[kind] for field, kind in kinds.items() if kind in types})


def visits(records: Sequence[VisitRecord]) -> pd.DataFrame:
    """One row per node of the autograd graph, in the order in which they run."""
    return _records(VisitRecord, records)


def evidence(data: CompilationData) -> pd.DataFrame:
    """One row per reason that a stage gave."""
    rows = [
        {"stage": stage.name, "subject": reason.subject, "reason": reason.reason}
        for stage in data.stages
        for reason in stage.evidence
    ]
    return _frame(["stage", "subject", "reason"], rows, {})


def _records(
    kind: type[Frozen],
    records: Sequence[Frozen],
    rename: dict[str, str] | None = None,
    types: dict[str, str] | None = None,
) -> pd.DataFrame:
    names = [(field, (rename or {}).get(field, field)) for field in kind.__struct_fields__]
    rows = [{name: _cell(getattr(record, field)) for field, name in names} for record in records]
    bools = {name: "bool" for field, name in names if kind.__annotations__[field] in BOOLS}
    return _frame([name for _, name in names], rows, {**bools, **(types or {})})


def _cell(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _frame(names: list[str], rows: list[dict[str, Any]], types: dict[str, str]) -> pd.DataFrame:
    import pandas as pd  # imported here because it takes half a second, and only tables need it

    columns = {}
    for name in names:
        column = [row[name] for row in rows]
        kind: Any = types.get(name, "object" if any(isinstance(cell, tuple) for cell in column) else "str")
        columns[name] = pd.Series(column, dtype=kind)
    return pd.DataFrame(columns)
