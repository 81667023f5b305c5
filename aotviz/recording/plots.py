"""Saved tensors and stages as plotly figures, drawn from the tables of `tables.py`.

plotly is imported only when a figure is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotviz.recording import sizes
from aotviz.recording.saved import costs_nothing

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

_NO_MODULE = "(no module)"


def saved_tensors(table: pd.DataFrame, name: str) -> Figure:
    """A treemap of the held bytes, by module. Areas are bytes, the hover text says why a value is saved, a click zooms.

    Values in an input's memory are left out, and values that share a storage are one area. `table` is
    `Compilation.saved_tensors`.
    """
    from plotly.graph_objects import Figure, Treemap

    known = table[table.held_bytes.notna() & (table.held_bytes > 0)]
    sharing = table[table.shares_with != ""].groupby("shares_with").name.agg(", ".join)
    root = f"/{name}"
    boxes = {root: _Box("", name)}
    for row in _rows(known):
        around = [root]  # the modules that the value is in, outermost first
        for part in (row.module or _NO_MODULE).split("."):
            around.append(f"{around[-1]}/{part}")
            boxes.setdefault(around[-1], _Box(around[-2], part))
        for group in around:
            boxes[group].nbytes += int(row.held_bytes)
        hover = f"{row.dtype} {_shape(row.shape)}<br>by {_text(row.producer)}<br>{_text(row.why)}<br>{_donated(row)}"
        if row.name in sharing:
            hover += f"<br>{_text(sharing[row.name])} in the same memory"
        boxes[f"{around[-1]}//{row.name}"] = _Box(around[-1], row.name, hover, int(row.held_bytes))
    figure = Figure(
        Treemap(
            ids=list(boxes),
            labels=[_text(box.label) for box in boxes.values()],
            parents=[box.parent for box in boxes.values()],
            values=[box.nbytes for box in boxes.values()],
            customdata=[box.hover for box in boxes.values()],
            branchvalues="total",
            hovertemplate="<b>%{label}</b><br>%{value:,} bytes<br>%{customdata}<extra></extra>",
        )
    )
    own = table.held_bytes[[not costs_nothing(row.name, row.memory_of) for row in _rows(table)]]
    nbytes = list(own.astype(object).where(own.notna(), None))
    figure.update_layout(title=f"{_text(name)}: {sizes.kept(nbytes, len(table) - len(nbytes))}")
    return figure


def stages(table: pd.DataFrame, name: str) -> Figure:
    """When each stage ran and for how long, in ms since the compilation began. `table` is `Compilation.stages`."""
    from plotly.graph_objects import Bar, Figure

    hover = [
        f"{_text(row.summary)}<br>{row.nodes_before} → {row.nodes_after} nodes"
        f"{'<br>late' if row.late else ''}{'<br>replayed from the cache' if row.replayed else ''}"
        for row in _rows(table)
    ]
    figure = Figure(
        Bar(
            orientation="h",
            y=[f"{number} {_text(stage)}" for number, stage in enumerate(table.stage)],
            base=table.started_ms,
            x=table.elapsed_ms,
            customdata=hover,
            hovertemplate="<b>%{y}</b><br>%{x:.2f} ms from %{base:.2f} ms<br>%{customdata}<extra></extra>",
        )
    )
    figure.update_layout(title=f"{_text(name)}: stages", xaxis_title="ms since the compilation started")
    figure.update_yaxes(autorange="reversed")
    return figure


def _rows(table: pd.DataFrame) -> Iterable[Any]:
    return table.itertuples()


@dataclass
class _Box:
    parent: str  # its id, "" for the outermost
    label: str
    hover: str = ""
    nbytes: int = 0  # with all that is inside


def _text(value: Any) -> str:
    """The value as text, escaped because plotly interprets some HTML tags."""
    return str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _shape(shape: Any) -> str:
    return "[" + ", ".join(_text(size) for size in shape) + "]"


def _donated(row: Any) -> str:
    return "donated" if row.donated else f"not donated: {_text(row.why_donated)}" if row.why_donated else "not donated"
