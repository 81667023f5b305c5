"""The user's own values of nodes, as colours of the graph: time per kernel, error per node, memory, anything.

A painting is made from a pandas Series that is indexed by node name. A node of the same name may be in the graphs of
several stages, and it is usually the same node. So a name without a stage is of every graph that has it. `stage=` and
`graph=`, or levels of a MultiIndex, say that only one is meant. Names that no graph has are kept too, and reported.

The paintings of a recording are saved with it. A live recording has one list of them, in its store.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from aotviz.recording.findings import Painting
from aotviz.recording.strings import clean

if TYPE_CHECKING:
    import pandas as pd

    from aotviz.recording.compilation import Compilation

LEVELS = ("stage", "graph", "node")
GROUPS = ("largest", "sum")
MOST_NAMED = 20  # unknown names in a message

Key = tuple[str, str, str]  # stage or "", role of the graph or "", name of the node
Graphs = Mapping[tuple[str, str], frozenset[str]]  # the names of its nodes, by stage and role


class Paintings:
    """The paintings of one recording, in the order in which they were added."""

    def __init__(self, records: Iterable[Painting] = ()) -> None:
        self.records: tuple[Painting, ...] = tuple(records)
        self._followers: list[Callable[[], None]] = []

    def put(self, painting: Painting) -> None:
        """Add a painting. It replaces the one with the same label."""
        self._set([*self._others(painting.compilation, painting.label), painting])

    def remove(self, compilation: str, label: str) -> None:
        """Remove a painting. Raises LookupError, which lists the labels, if there is no such painting."""
        others = self._others(compilation, label)
        if len(others) == len(self.records):
            known = ", ".join(repr(one.label) for one in self.records if one.compilation == compilation)
            raise LookupError(f"no painting {label!r}; there {f'are {known}' if known else 'are no paintings'}")
        self._set(others)

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change. Calling the result stops it."""
        self._followers.append(changed)
        return lambda: self._followers.remove(changed) if changed in self._followers else None

    def _others(self, compilation: str, label: str) -> list[Painting]:
        return [one for one in self.records if (one.compilation, one.label) != (compilation, label)]

    def _set(self, records: Sequence[Painting]) -> None:
        self.records = tuple(records)
        for changed in list(self._followers):
            changed()


def painting(
    values: pd.Series[Any] | Mapping[Any, Any],
    compilation: Compilation,
    *,
    label: str | None = None,
    unit: str = "",
    note: str = "",
    stage: str | None = None,
    graph: str | None = None,
    groups: str = "largest",
    node: str = "",
) -> tuple[Painting, list[Any]]:
    """The painting, and those entries of the index that no graph has, as the user wrote them.

    `Recording.paint` documents the arguments and what is raised.
    """
    import pandas as pd  # imported here because it takes half a second

    series = pd.Series(dict(values)) if isinstance(values, Mapping) else values
    if not isinstance(series, pd.Series):
        raise TypeError(
            f"expected a pandas Series (or a dict) with names of nodes as index, got {type(values).__name__}"
            + ("; choose one of its columns" if isinstance(values, pd.DataFrame) else "")
        )
    if groups not in GROUPS:
        raise ValueError(f"groups={groups!r}: a closed module shows {' or '.join(map(repr, GROUPS))} of its nodes")
    if series.empty:
        raise ValueError("the Series is empty: there is nothing to paint")
    names = _graph_names(compilation)
    keys = _keys(series.index, names, stage, graph)
    again = [key for key, count in Counter(keys).items() if count > 1]
    if again:
        shown = _listed([" ".join(filter(None, key)) for key in again])
        raise ValueError(
            f"the Series has several values for one node: {shown}. "
            "Combine them first, for example with series.groupby(level=0).sum()"
        )
    numbers, texts, found_unit = _values(series)
    places = [_places(key, names) for key in keys]
    unknown = [entry for entry, place in zip(series.index.tolist(), places, strict=True) if not place]
    if len(unknown) == len(keys):
        raise ValueError(f"no graph of {compilation.name} has a node with these names: {_listed(unknown)}")
    most = Counter(place for found in places for place in found)
    # The first of the graphs with the most of them, among those with `node`.
    at = max(names, key=lambda place: (node in names[place], most[place]))
    given = label if label is not None else series.name
    made = Painting(
        compilation=compilation.id,
        label=clean(str(given)) if given is not None else "painted",
        unit=clean(unit or found_unit),
        note=clean(note),
        groups=groups,
        names=[key[2] for key in keys],
        stages=[key[0] for key in keys],
        graphs=[key[1] for key in keys],
        numbers=numbers,
        texts=texts,
        stage=at[0],
        graph=at[1],
        node=node,
    )
    return made, unknown


def warn_of(unknown: Sequence[Any], compilation: Compilation) -> None:
    """Warn of names that no graph has, at the user's line."""
    is_one = len(unknown) == 1
    count = "1 name of the Series is" if is_one else f"{len(unknown)} names of the Series are"
    colours = "colours" if is_one else "colour"
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("aotviz."):
        level, frame = level + 1, frame.f_back
    said = f"{count} in no graph of {compilation.name}, and {colours} nothing: {_listed(unknown)}"
    warnings.warn(said, stacklevel=level)


def frame(records: Iterable[Painting]) -> pd.DataFrame:
    """One row per name of each painting."""
    import pandas as pd

    columns = ("compilation", "label", "stage", "graph", "node", "value", "unit")
    rows = [
        (one.compilation, one.label, *key, value, one.unit)
        for one in records
        for key, value in zip(
            zip(one.stages, one.graphs, one.names, strict=True), one.numbers or one.texts, strict=True
        )
    ]
    return pd.DataFrame(rows, columns=list(columns))


def _graph_names(compilation: Compilation) -> Graphs:
    """The names of the nodes of each graph, by stage and role, in the order of the stages."""
    data, texts = compilation.data, compilation.strings
    names = [frozenset(texts[number] for number in graph.name) for graph in data.graphs]
    return {(stage.name, role): names[number] for stage in data.stages for role, number in stage.graphs.items()}


def _places(key: Key, graphs: Graphs) -> list[tuple[str, str]]:
    """The stages and roles of the graphs that have a node."""
    stage, role, name = key
    return [
        place for place, names in graphs.items() if stage in ("", place[0]) and role in ("", place[1]) and name in names
    ]


def _keys(index: pd.Index[Any], graphs: Graphs, stage: str | None, graph: str | None) -> list[Key]:
    """For each entry of the index, the stage, the role and the name that it means."""
    known = {"stage": [place[0] for place in graphs], "graph": [place[1] for place in graphs]}
    given = {"stage": stage, "graph": graph}
    levels = _levels(index, known)
    for what, value in given.items():
        if value is None:
            continue
        if what in levels:
            raise TypeError(f"{what}={value!r}, but the index has a level that says it: leave one of them out")
        if value not in known[what]:
            raise LookupError(f"no {what} {value!r} with a graph: there are {_listed(dict.fromkeys(known[what]))}")
    columns = {level: [clean(str(entry)) for entry in index.get_level_values(i)] for i, level in enumerate(levels)}
    for what, value in given.items():
        columns.setdefault(what, [value or ""] * len(index))
    return list(zip(*(columns[level] for level in LEVELS), strict=True))


def _levels(index: pd.Index[Any], known: Mapping[str, Sequence[str]]) -> list[str]:
    """What each level of the index is. Levels without these names are told apart by what they contain."""
    names = [str(name) for name in index.names]
    if index.nlevels == 1:
        return ["node"]
    if set(names) <= set(LEVELS) and len(set(names)) == len(names) and "node" in names:
        return names
    if index.nlevels == len(LEVELS):
        return list(LEVELS)
    if index.nlevels == 2:
        first = set(map(str, index.get_level_values(0)))
        for what in ("graph", "stage"):
            if first <= set(known[what]):
                return [what, "node"]
    raise ValueError(
        f"the levels of the index are {_listed(index.names)}; name them {_listed(LEVELS)}, "
        "where 'stage' and 'graph' may be left out"
    )


def _values(series: pd.Series[Any]) -> tuple[list[float], list[str], str]:
    """The numbers, or the categories, and the unit if the dtype has one."""
    from pandas.api import types  # imported here because it takes half a second

    if types.is_timedelta64_dtype(series.dtype):
        return [float(value) for value in series.dt.total_seconds()], [], "s"
    if types.is_complex_dtype(series.dtype):
        raise TypeError("complex numbers have no order: paint their absolute values, series.abs()")
    entries = [value.item() if hasattr(value, "item") else value for value in series.tolist()]
    missing = series.isna().tolist()
    is_numeric = types.is_numeric_dtype(series.dtype) and not types.is_bool_dtype(series.dtype)
    present = [value for value, absent in zip(entries, missing, strict=True) if not absent]
    if is_numeric or (present and all(isinstance(value, Real) and not isinstance(value, bool) for value in present)):
        numbers = [float("nan") if absent else float(value) for value, absent in zip(entries, missing, strict=True)]
        return numbers, [], ""
    return [], [clean(str(value)) for value in entries], ""


def _listed(names: Iterable[Any]) -> str:
    shown = list(names)
    more = f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else ""
    return ", ".join(map(repr, shown[:MOST_NAMED])) + more
