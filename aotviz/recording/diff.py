"""Compare the graphs of two stages: which values were kept, removed or added.

Node names change from stage to stage, so nodes are matched by `value_id`, which stages preserve. One value may have
several nodes in the later stage: the forward computes it, and the backward receives or recomputes it. Each of these
nodes is a row that points at the one earlier node. A node without a `value_id`, or one whose `value_id` was lost
because a stage traced again, is matched by name and target; the column `by` says which way a row was matched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from aotviz.recording.graph import Graph
    from aotviz.recording.listing import Node

COLUMNS = "change by value_id role_before name_before target_before role_after name_after target_after".split()


@dataclass(frozen=True)
class Place:
    """A node and the role of its graph."""

    role: str
    node: Node

    @property
    def cells(self) -> tuple[str, str, str]:
        return self.role, self.node.name, self.node.target


def diff(before: Sequence[Graph], after: Sequence[Graph]) -> pd.DataFrame:
    """One row for each node of `after`, "kept" or "added", then one for each "removed" node of `before`."""
    import pandas as pd  # imported here because it takes half a second, and only tables need it

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
    return pd.DataFrame(rows, columns=COLUMNS)


def best(place: Place, candidates: Sequence[Place]) -> Place | None:
    """The best match among `candidates`: one with the same name, else one with the same target, else the first."""
    if not candidates:
        return None
    node = place.node
    return max(candidates, key=lambda other: (other.node.name == node.name, other.node.target == node.target))
