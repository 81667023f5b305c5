"""How the graphs of two compilations of one function differ, node by node.

Names count operations from one, so they shift behind every node that is new. Nodes are therefore matched by the
sequence of what they do; of those that do the same, the ones whose values have another shape, dtype or device are
"changed".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from aotviz.explain import explained_tables
from aotviz.explain.explanation import counted, sentence
from aotviz.recording.compilation import Compilation
from aotviz.recording.graph import Graph
from aotviz.recording.node import Node

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

ROLES = ("dynamo", "forward", "inference", "joint", "backward")  # which graph is compared, the first that both have
CONSTANT = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])|'[^']*'")
SAID = {"same": "the same"}
KINDS = ("same", "changed", "added", "removed")


@dataclass(frozen=True)
class NodeChange:
    """One operation in either graph, or in both."""

    change: str  # one of KINDS
    node: Node  # of the later graph, or of the earlier one if it was removed
    before: str  # what is known of its value, e.g. "float32[2, 4]"; "" if it is not there
    after: str


def common_graphs(before: Compilation, after: Compilation, role: str | None = None) -> tuple[Graph, Graph]:
    """The graphs to compare. Raises LookupError where the compilations have no graph in common."""
    roles = [role] if role else list(ROLES)
    for wanted in roles:
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


COLUMNS = {
    "change": "str",
    "name": "str",
    "target": "str",
    "before": "str",
    "after": "str",
    "code": "str",
    "place": "str",
}


def frame(before: Compilation, after: Compilation, role: str | None = None) -> ExplainedTable:
    """One row a node."""
    rows: list[dict[str, Any]] = [
        {
            "change": change.change,
            "name": change.node.name,
            "target": change.node.target,
            "before": change.before,
            "after": change.after,
            "code": change.node.source.code,
            "place": str(change.node.source),
        }
        for change in find(*common_graphs(before, after, role))
    ]
    return explained_tables.table(COLUMNS, rows, marked=("before", "after"))


def told(before: Compilation, after: Compilation) -> str:
    """In a sentence; "" where there are no graphs to compare."""
    try:
        graphs = common_graphs(before, after)
    except LookupError:
        return ""
    changes = list(find(*graphs))
    count = Counter(change.change for change in changes)
    if not count["changed"] and not count["added"] and not count["removed"]:
        return sentence(f"Its graph is that of {before.id}, node for node ({counted(len(changes), 'node')})")
    said = [
        f"{count[kind]} {'is' if count[kind] == 1 else 'are'} {SAID.get(kind, kind)}" for kind in KINDS if count[kind]
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
