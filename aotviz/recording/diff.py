"""What one stage did to the graphs of another: which values were kept, which are gone, which are new.

Node names change from stage to stage, so a value is followed by its identity (`value_id`), which stages keep. One
value may have several nodes afterwards: the forward makes it, and the backward receives or recomputes it; each is
a row that points at the one node before. A node without an identity, or whose identity was lost because a stage
traced anew, is followed by its name and target, and its row says so in `by`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from aotviz.recording.graph import Graph
    from aotviz.recording.node import Node

COLUMNS = (
    "change",
    "by",
    "value_id",
    "role_before",
    "name_before",
    "target_before",
    "role_after",
    "name_after",
    "target_after",
)


@dataclass(frozen=True)
class Place:
    """A node and the graph it stands in."""

    role: str
    node: Node

    @property
    def cells(self) -> tuple[str, str, str]:
        return self.role, self.node.name, self.node.target


def diff(before: Sequence[Graph], after: Sequence[Graph]) -> pd.DataFrame:
    """One row for each node of `after`, "kept" or "added", then one for each "removed" node of `before`."""
    import pandas as pd  # half a second, which only a reader of tables should pay

    old = [Place(graph.role, node) for graph in before for node in graph.rows]
    new = [Place(graph.role, node) for graph in after for node in graph.rows]
    by_value: dict[int, list[Place]] = defaultdict(list)
    by_name: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place in old:
        if place.node.value_id >= 0:
            by_value[place.node.value_id].append(place)
        by_name[place.node.name, place.node.target].append(place)
    rows: list[tuple[object, ...]] = []
    kept: set[int] = set()
    for place in new:
        by, match = "value", best(place, by_value.get(place.node.value_id, ()))
        if match is None:
            by, match = "name", best(place, by_name.get((place.node.name, place.node.target), ()))
        if match is None:
            rows.append(("added", "", place.node.value_id, "", "", "", *place.cells))
        else:
            kept.add(id(match))
            rows.append(("kept", by, place.node.value_id, *match.cells, *place.cells))
    values_after = {place.node.value_id for place in new} - {-1}
    for place in old:
        if id(place) not in kept and place.node.value_id not in values_after:
            rows.append(("removed", "", place.node.value_id, *place.cells, "", "", ""))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def best(place: Place, candidates: Sequence[Place]) -> Place | None:
    """The most alike of the nodes that hold the same value: of the same name, else of the same target."""
    if not candidates:
        return None
    node = place.node
    return max(candidates, key=lambda other: (other.node.name == node.name, other.node.target == node.target))
