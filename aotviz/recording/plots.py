"""Saved tensors and stages as plotly figures, drawn from the tables of `tables.py`.

plotly is imported only when a figure is made.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    boxes = _Boxes(name)
    for row in _rows(known):
        parent = boxes.root
        for part in (row.module or _NO_MODULE).split("."):
            parent = boxes.group(parent, part)
        hover = f"{row.dtype} {_shape(row.shape)}<br>by {_text(row.producer)}<br>{_text(row.why)}<br>{_donated(row)}"
        if row.name in sharing:
            hover += f"<br>{_text(sharing[row.name])} in the same memory"
        boxes.leaf(parent, row.name, int(row.held_bytes), hover)
    figure = Figure(
        Treemap(
            ids=boxes.ids,
            labels=boxes.labels,
            parents=boxes.parents,
            values=boxes.sums(),
            customdata=boxes.hovers,
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
        f"{_text(row.summary)}<br>{row.nodes_before} → {row.nodes_after} nodes{'<br>late' if row.late else ''}"
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


class _Boxes:
    """Nested boxes as the columns that plotly expects. A group's value is the sum of its contents."""

    def __init__(self, root: str) -> None:
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.parents: list[str] = []
        self.hovers: list[str] = []
        self._own: dict[str, int] = {}
        self.root = self.group("", root)

    def group(self, parent: str, label: str) -> str:
        key = f"{parent}/{label}"
        if key not in self._own:
            self._add(key, parent, label, 0, "")
        return key

    def leaf(self, parent: str, label: str, value: int, hover: str) -> None:
        self._add(f"{parent}//{label}", parent, label, value, hover)

    def sums(self) -> list[int]:
        sums = dict(self._own)
        for key, parent in zip(reversed(self.ids), reversed(self.parents), strict=True):
            if parent:
                sums[parent] += sums[key]
        return [sums[key] for key in self.ids]

    def _add(self, key: str, parent: str, label: str, value: int, hover: str) -> None:
        self.ids.append(key)
        self.labels.append(_text(label))
        self.parents.append(parent)
        self.hovers.append(hover)
        self._own[key] = value


def _text(value: Any) -> str:
    """The value as text, escaped because plotly interprets some HTML tags."""
    return str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _shape(shape: Any) -> str:
    return "[" + ", ".join(_text(size) for size in shape) + "]"


def _donated(row: Any) -> str:
    return "donated" if row.donated else f"not donated: {_text(row.why_donated)}" if row.why_donated else "not donated"
