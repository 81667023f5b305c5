"""How the graphs of two compilations of one function differ, node by node.

A new node renumbers the names after it, so nodes are matched by the sequence of their operations. Matched nodes whose
values differ in shape, dtype or device are "changed".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from aotviz.explain import explained_tables
from aotviz.explain.explanation import counted, sentence
from aotviz.recording.compilation import Compilation
from aotviz.recording.graph import Graph
from aotviz.recording.listing import Node

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

ROLES = ("dynamo", "forward", "inference", "joint", "backward")  # which graph is compared, the first that both have
CONSTANT = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])|'[^']*'")


@dataclass(frozen=True)
class NodeChange:
    """One operation in either graph, or in both."""

    change: str  # "same", "changed", "added" or "removed"
    node: Node  # of the later graph, or of the earlier one if it was removed
    before: str  # what is known of its value, e.g. "float32[2, 4]"; "" if it is not there
    after: str


def common_graphs(before: Compilation, after: Compilation, role: str | None = None) -> tuple[Graph, Graph]:
    """The graphs to compare. Raises LookupError if the compilations have no graph in common."""
    for wanted in [role] if role else ROLES:
        try:
            return before.graph(wanted), after.graph(wanted)
        except LookupError:
            if role:
                raise
    raise LookupError(f"{before.id} and {after.id} have no graph in common in this recording")


def find(before: Graph, after: Graph) -> Iterator[NodeChange]:
    """Every node of both, in the order of `after`."""
    old, new = before.rows, after.rows
    matcher = SequenceMatcher(None, [_does(node) for node in old], [_does(node) for node in new], autojunk=False)
    for kind, start, stop, other_start, other_stop in matcher.get_opcodes():
        if kind == "equal":
            for one, other in zip(old[start:stop], new[other_start:other_stop], strict=True):
                was, now = _value(before, one), _value(after, other)
                yield NodeChange("same" if was == now else "changed", other, was, now)
            continue
        for node in old[start:stop]:
            yield NodeChange("removed", node, _value(before, node), "")
        for node in new[other_start:other_stop]:
            yield NodeChange("added", node, "", _value(after, node))


COLUMNS: explained_tables.Columns = {
    "change": ("str", lambda change: change.change),
    "name": ("str", lambda change: change.node.name),
    "target": ("str", lambda change: change.node.target),
    "before": ("str", lambda change: change.before),
    "after": ("str", lambda change: change.after),
    "code": ("str", lambda change: change.node.source.code),
    "place": ("str", lambda change: str(change.node.source)),
}


def frame(before: Compilation, after: Compilation, role: str | None = None) -> ExplainedTable:
    """One row for each node."""
    changes = find(*common_graphs(before, after, role))
    return explained_tables.table(COLUMNS, changes, marked=("before", "after"))


def told(before: Compilation, after: Compilation) -> str:
    """The changes in a sentence, or "" if there are no graphs to compare."""
    try:
        graphs = common_graphs(before, after)
    except LookupError:
        return ""
    changes = list(find(*graphs))
    count = Counter(change.change for change in changes)
    if not count["changed"] and not count["added"] and not count["removed"]:
        return sentence(f"Its graph is that of {before.id}, node for node ({counted(len(changes), 'node')})")
    names = {"same": "the same", "changed": "changed", "added": "added", "removed": "removed"}
    said = [
        f"{count[kind]} {'is' if count[kind] == 1 else 'are'} {name}" for kind, name in names.items() if count[kind]
    ]
    example = next((change for change in changes if change.change == "changed"), None)
    shown = ""
    if example is not None:
        shown = f"the first: `{example.node.name}` was `{example.before}` and is `{example.after}`"
    return sentence(f"Compared with the graph of {before.id}, of its nodes {', '.join(said)}", shown)


def _does(node: Node) -> tuple[str, str]:
    return node.op, node.name if node.op == "placeholder" else node.target


def _value(graph: Graph, node: Node) -> str:
    """The value's type and size, and the constants that the operation is given."""
    value, constants = node.value, ", ".join(CONSTANT.findall(node.args)) if node.op != "placeholder" else ""
    if value is None or value.kind != "tensor":
        return constants
    sizes = ", ".join(map(str, value.shape))
    device = graph.text(value.device)
    kind = f"{graph.text(value.dtype).removeprefix('torch.')}[{sizes}]" + (f" on {device}" if device != "cpu" else "")
    return f"{kind} with {constants}" if constants else kind
