"""Makes tables of explanations. Importing pandas takes a third of a second, so it waits for the first table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aotviz.recording import tables

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

Columns = tables.Columns


def table(columns: Columns, things: Iterable[Any], marked: Sequence[str], hidden: Sequence[str] = ()) -> ExplainedTable:
    """One row for each thing."""
    from aotviz.explain.marked_frame import ExplainedTable

    made = ExplainedTable(tables.table(columns, things))
    made.marked, made.hidden = tuple(marked), tuple(hidden)
    return made
