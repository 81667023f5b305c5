"""A graph by columns, so that two states of it can be compared quickly."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any

from torch import fx

from aotviz.torch_private import snapshotting


@dataclass(frozen=True)
class Parts:
    """A graph's columns, each with one entry per node. An edit of the graph replaces some of the entries.

    FX makes new `args` and `kwargs` at each edit, so they are compared by identity. This object keeps them alive, so
    that no other object gets their addresses.
    """

    nodes: list[Any]
    args: list[tuple[Any, ...]]
    kwargs: list[dict[str, Any]]
    values: list[Any]  # meta["val"]
    descriptors: list[Any]  # meta["desc"]

    @classmethod
    def of(cls, graph: fx.Graph) -> Parts:
        nodes: list[Any] = list(graph.nodes)
        metas = [node.meta for node in nodes]
        return cls(
            nodes,
            list(map(snapshotting.arguments, nodes)),
            list(map(snapshotting.keywords, nodes)),
            [meta.get("val") for meta in metas],
            [meta.get("desc") for meta in metas],
        )

    def same_as(self, other: Parts) -> bool:
        """Whether both are of one graph in one state."""
        columns = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return all(len(mine) == len(theirs) and all(map(operator.is_, mine, theirs)) for mine, theirs in columns)
