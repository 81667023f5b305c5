"""One recorded graph in readable form: a table of nodes, Python text, or a drawing.

A snapshot is columns of numbers; here they become names again. Some facts are not in the snapshot because they follow
from the rest, such as the users of a node. These are computed on first use.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aotviz.recording import tables
from aotviz.recording.listing import Node, listing
from aotviz.recording.node_arguments import NODE, references
from aotviz.recording.schema import GraphSnapshot, ValueRecord
from aotviz.recording.sizes import made_bytes
from aotviz.recording.sources import SourceLine, innermost

if TYPE_CHECKING:
    import graphviz
    import pandas as pd

OPS = {
    "p": "placeholder",
    "f": "call_function",
    "m": "call_module",
    "c": "call_method",
    "a": "get_attr",
    "o": "output",
}


CHECKPOINT_TAGS = (
    "MUST_SAVE", "PREFER_SAVE", "MUST_RECOMPUTE", "PREFER_RECOMPUTE", "MUST_CPU_OFFLOAD", "PREFER_CPU_OFFLOAD",
)  # fmt: skip
"""The names of torch's `CheckpointPolicy`, by value."""

ITEM = "operator.getitem"
HALF = re.compile(r"(forward|inference|backward)\b")  # a role's first word, because "forward 2" is a forward too


def runs_backward(role: str, mark: str) -> bool:
    """Whether a node runs in the backward: all nodes of a backward graph do, and no node of a forward graph does.

    For other roles `mark`, from GraphSnapshot.backward, says in which half the node was traced.

    >>> runs_backward("joint", "1"), runs_backward("forward", "1")  # the partitioner moves what it can into the forward
    (True, False)
    """
    half = HALF.match(role)
    return half[1] == "backward" if half else mark == "1"


def tag_of(snapshot: GraphSnapshot, index: int) -> str:
    """What the partitioner is told about a node, by a checkpoint or because it must be saved; "" if nothing."""
    number, _ = snapshot.checkpoint.get(index, (-1, -1))
    return CHECKPOINT_TAGS[number] if 0 <= number < len(CHECKPOINT_TAGS) else ""


def checkpoint_of(snapshot: GraphSnapshot, index: int) -> str:
    """The tag of a node in a region of torch.utils.checkpoint, in words; "" outside of one."""
    _, region = snapshot.checkpoint.get(index, (-1, -1))
    return tag_of(snapshot, index).lower().replace("_", " ") if region > 0 else ""


class Graph:
    """A graph of a recording: `role` is "joint", "forward", "backward" or "inference".

    >>> import aotviz
    >>> graph = aotviz.load("demo.aotviz")[0].graph("joint")  # doctest: +SKIP
    >>> graph.nodes.query("dtype == 'torch.float32'").target.value_counts()  # doctest: +SKIP
    >>> print(graph)  # doctest: +SKIP
    """

    def __init__(
        self, snapshot: GraphSnapshot, values: Sequence[ValueRecord], strings: Sequence[str], role: str, stage: str
    ) -> None:
        self.snapshot = snapshot
        self.values = values
        self.strings = strings
        self.role = role
        self.stage = stage

    def __len__(self) -> int:
        return len(self.snapshot.op)

    def __repr__(self) -> str:
        return f"<aotviz Graph {self.role!r} after {self.stage!r}: {len(self)} nodes>"

    def __str__(self) -> str:
        return self.code

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.code)

    def text(self, number: int) -> str:
        """The text with this number; "" if the number is negative."""
        return self.strings[number] if number >= 0 else ""

    @cached_property
    def rows(self) -> tuple[Node, ...]:
        """The nodes in topological order."""
        snapshot = self.snapshot
        sources: dict[int, SourceLine] = {}
        modules: dict[int, tuple[str, str, str]] = {}
        rows = []
        for index, op in enumerate(snapshot.op):
            stack, module, value = snapshot.stack[index], snapshot.module[index], snapshot.value[index]
            if stack not in sources:
                sources[stack] = innermost(self.text(stack))
            if module not in modules:
                modules[module] = self.text(module).rpartition("\n")[2].rpartition("|")
            path, _, kind = modules[module]
            args: Sequence[Any] = snapshot.args[index]
            if index in snapshot.kwargs:
                args = [*args, *snapshot.kwargs[index].values()]
            rows.append(
                Node(
                    index=index,
                    op=OPS[op],
                    name=self._names[index],
                    target=self.text(snapshot.target[index]),
                    inputs=tuple(dict.fromkeys(index - back for kind, back in references(args) if kind == NODE)),
                    value_id=value,
                    value=self.values[value] if value >= 0 else None,
                    source=sources[stack],
                    module_path=path,
                    module_type=kind,
                    sequence_number=snapshot.sequence[index],
                    is_backward=runs_backward(self.role, snapshot.backward[index]),
                    descriptor=self.text(snapshot.descriptor.get(index, -1)),
                    arguments=self._arguments,
                    place=index,
                    checkpoint=tag_of(snapshot, index) if snapshot.checkpoint else "",
                )
            )
        return tuple(rows)

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.rows}

    def maker(self, node: Node) -> Node:
        """The node that computes a value: of an item, the one that returns them all."""
        while node.target == ITEM:
            node = self.rows[node.inputs[0]]
        return node

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the indices of the nodes that read it, in order."""
        users: list[list[int]] = [[] for _ in self.rows]
        for node in self.rows:
            for source in node.inputs:
                users[source].append(node.index)
        return tuple(map(tuple, users))

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """What the graph returns, one text per output."""
        if not self.snapshot.op.endswith("o"):
            return ()
        index = len(self) - 1
        args = self.snapshot.args[index]
        returned = args[0][1:] if len(args) == 1 and isinstance(args[0], list) and args[0][0] == "L" else args
        return tuple(self._argument(arg, index) for arg in returned)

    @property
    def output_descriptors(self) -> tuple[str, ...]:
        """What each graph output means to the user; "" where that is unknown."""
        return tuple(map(self.text, self.snapshot.output_descriptors))

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """One row per node, in topological order.

        Columns: name, op, target, args (text), users (tuple of names), kind, dtype, shape and stride (tuples of
        elements; symbolic ones as text), storage_offset (elements), device, requires_grad, storage_group (nodes with
        the same number share memory; -1 if unknown), made_bytes (that the node allocates: 0 for an input or a view,
        missing if a size is symbolic), source_line ("file:line"), source_code, module_path, module_type,
        descriptor, value_id (the same value has the same number in all graphs of the compilation; -1 if unknown),
        sequence_number (a forward op and its backward share it), is_backward.
        """
        text, names = self.text, [node.name for node in self.rows]
        made = made_bytes(self.snapshot, self.values, self.strings)
        columns: tables.Columns = {
            **tables.attributes(name="str", op="str", target="str", args="str"),
            "users": ("object", lambda node: tuple(names[user] for user in self.users[node.index])),
            "kind": ("str", lambda node: node.value.kind if node.value else ""),
            "dtype": ("str", lambda node: text(node.value.dtype) if node.value else ""),
            "shape": ("object", lambda node: tuple(node.value.shape) if node.is_tensor else None),
            "stride": ("object", lambda node: tuple(node.value.stride) if node.is_tensor else None),
            "storage_offset": ("object", lambda node: node.value.offset if node.is_tensor else None),
            "device": ("str", lambda node: text(node.value.device) if node.value else ""),
            "requires_grad": ("bool", lambda node: bool(node.value and node.value.requires_grad)),
            "storage_group": ("int64", lambda node: node.value.storage if node.value else -1),
            "made_bytes": ("Int64", lambda node: made[node.index]),
            "source_line": ("str", lambda node: str(node.source)),
            "source_code": ("str", lambda node: node.source.code),
            **tables.attributes(module_path="str", module_type="str", descriptor="str"),
            **tables.attributes(value_id="int64", sequence_number="int64", is_backward="bool"),
        }
        return tables.table(columns, self.rows)

    @cached_property
    def code(self) -> str:
        """The graph as Python text, with the user's source lines as comments. It is for reading, not for running."""
        return listing(self)

    def to_graphviz(self) -> graphviz.Source:
        """The graph as a graphviz drawing, with modules as boxes. A notebook shows it if `dot` is installed.

        Raises ImportError without the `graphviz` package. The workbench is better for large graphs.
        """
        import graphviz  # only this method needs it

        from aotviz.recording.dot import dot

        return graphviz.Source(dot(self))

    @cached_property
    def _names(self) -> list[str]:
        return [self.text(number) for number in self.snapshot.name]

    def _arguments(self, index: int) -> str:
        """The arguments of a node as text."""
        named = self.snapshot.kwargs.get(index, {}).items()
        parts = [self._argument(arg, index) for arg in self.snapshot.args[index]]
        return ", ".join([*parts, *(f"{key}={self._argument(arg, index)}" for key, arg in named)])

    def _argument(self, arg: Any, index: int) -> str:
        """One encoded argument (see GraphSnapshot) as text."""
        if isinstance(arg, list):
            if arg[0] == "L":
                return "[" + ", ".join(self._argument(part, index) for part in arg[1:]) + "]"
            source: int = index - arg[0]
            return self._names[source]
        if isinstance(arg, dict):
            ((tag, content),) = arg.items()
            if tag == "r":
                return self.text(content)
            if tag == "s":
                return "slice(" + ", ".join(self._argument(part, index) for part in content) + ")"
            items = (f"{key!r}: {self._argument(part, index)}" for key, part in content.items())
            return "{" + ", ".join(items) + "}"
        return "end" if arg == sys.maxsize else repr(arg)  # of a slice up to the end, in torch's words
