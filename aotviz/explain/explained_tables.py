"""Makes tables of explanations. Importing pandas takes a third of a second, so it waits for the first table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable


Columns = Mapping[str, tuple[str, Callable[[Any], Any]]]  # name -> its dtype, and how a thing's entry is read


def table(
    columns: Columns, things: Iterable[Any], marked: Sequence[str] = (), hidden: Sequence[str] = ()
) -> ExplainedTable:
    """One row for each thing."""
    from aotviz.explain.marked_frame import marked_frame

    rows = [{name: read(thing) for name, (_, read) in columns.items()} for thing in things]
    return marked_frame({name: dtype for name, (dtype, _) in columns.items()}, rows, marked, hidden)
