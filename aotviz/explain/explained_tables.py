"""Makes tables of explanations. Pandas takes a third of a second to import: only a table that is asked for pays it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable


def table(
    columns: dict[str, str], rows: Sequence[dict[str, Any]], marked: Sequence[str] = (), hidden: Sequence[str] = ()
) -> ExplainedTable:
    """Rows as a table. `columns` gives each column's dtype, so that an empty table has them too."""
    from aotviz.explain.marked_frame import marked_frame

    return marked_frame(columns, rows, marked, hidden)
