"""Tables of explanations: pandas DataFrames whose HTML wraps long sentences and highlights some columns.

All text is escaped, because recordings may come from untrusted sources. A selection is a plain DataFrame.
"""

from __future__ import annotations

import html
from typing import Any

import pandas as pd

from aotviz.explain.explanation import MARKED, QUIET, in_html

MOST_ROWS = 200
CELL = "text-align:left;vertical-align:top;white-space:pre-wrap;max-width:38em;overflow-wrap:anywhere"
WIDE, LONG = ";min-width:18em", 60  # for a text of at least so many characters


class ExplainedTable(pd.DataFrame):
    """A DataFrame with marked columns and wrapped text. Hidden columns are there, but are not shown."""

    _metadata = ["marked", "hidden"]  # noqa: RUF012 # pandas' own way to say which attributes a copy keeps
    marked: tuple[str, ...]
    hidden: tuple[str, ...]

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def __repr__(self) -> str:
        return repr(pd.DataFrame(self).drop(columns=[name for name in self.hidden if name in self]))

    def _repr_html_(self) -> str:
        columns = [str(name) for name in self.columns if name not in self.hidden]
        head = "".join(f"<th style='text-align:left'>{html.escape(name.replace('_', ' '))}</th>" for name in columns)
        rows = "".join(
            "<tr>" + "".join(_cell(row[name], name in self.marked) for name in columns) + "</tr>"
            for row in self.head(MOST_ROWS).to_dict("records")
        )
        more = len(self) - MOST_ROWS
        tail = f"<p style='{QUIET}'>{more} more rows</p>" if more > 0 else ""
        empty = "" if len(self) else f"<p style='{QUIET}'>no rows</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{tail}{empty}"


def _cell(value: Any, marked: bool) -> str:
    if isinstance(value, float):
        text = "" if pd.isna(value) else f"{value:.3f}"
    elif isinstance(value, tuple):
        text = "\n".join(map(str, value))
    else:
        text = str(value)
    shown = in_html(text)
    if marked and text:
        shown = f"<span style='{MARKED}'>{shown}</span>"
    return f"<td style='{CELL}{WIDE if len(text) >= LONG else ''}'>{shown}</td>"
