"""What the program keeps for its backward beside what eager's autograd keeps, from the recorded graphs.

The joint graph is autograd's own trace: a value of the forward that a node of its backward reads is one that autograd
saves for the formulas of these operators. Values count by storage. What only the program saves, and what only eager
saves (because the program recomputes it, or needs it not), are the two sides of the partitioner's work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aotviz.recording import sizes, tables
from aotviz.recording.frozen import Frozen
from aotviz.recording.graph import Graph
from aotviz.recording.listing import Node
from aotviz.recording.memory_facts import CASTS
from aotviz.recording.saved import cost
from aotviz.recording.schema import SavedTensorRecord

if TYPE_CHECKING:
    import pandas as pd

_MOST_COPIES = 3  # sentences about copies


class Beside(Frozen, frozen=True):
    """A storage that is kept for the backward, by the program or by eager."""

    name: str
    nbytes: int
    program: bool
    eager: bool
    copy_of: str  # the parameter or buffer that it is a copy of in another dtype
    dtype: str
    producer: str
    module: str
    source: str


class Totals(NamedTuple):
    program: int  # bytes, beside inputs and parameters
    eager: int
    recomputed: int  # of these, bytes that eager keeps and the program does not
    added: int  # bytes that the program keeps and eager does not


class BesideEager:
    """What a program keeps for its backward beside what eager keeps.

    >>> import torch
    >>> import aotviz
    >>> f = aotviz.compile(lambda x: x.sin().cos().sum(), backend="eager")
    >>> f(torch.ones(100, requires_grad=True)).backward()
    >>> f.recording[0].beside_eager().totals
    Totals(program=0, eager=400, recomputed=400, added=0)
    >>> print(f.recording[0].beside_eager())
    Eager keeps 400 B for the backward, beside inputs and parameters; this program keeps 0 B. It keeps 400 B less, ...
    """

    def __init__(self, joint: Graph, forward: Graph, saved: Sequence[SavedTensorRecord], kinds: dict[str, str]) -> None:
        self._kinds = kinds
        nodes = forward.by_name
        kept = {_storage(nodes[one.name]) for one in saved if cost(one) and one.name in nodes}
        of_joint, of_forward = _nbytes(joint), _nbytes(forward)
        eagers = dict(_eagers(joint))
        mine = dict(_of(forward, kept))
        by_name = {node.name: key for key, node in eagers.items()}
        self.rows: list[Beside] = []
        for key, node in mine.items():
            other = key if key in eagers else by_name.get(node.name)
            self.rows.append(self._row(forward, node, of_forward[key], True, other is not None))
            eagers.pop(other if other is not None else -1, None)
        self.rows += [self._row(joint, node, of_joint[key], False, True) for key, node in eagers.items()]
        self.rows.sort(key=lambda row: -row.nbytes)

    @property
    def table(self) -> pd.DataFrame:
        """One row per storage that either keeps, the largest first.

        Columns: name, nbytes, program and eager (who keeps it), copy_of (the parameter that it is a copy of in another
        dtype), dtype, producer, module, source.
        """
        return tables.records(Beside, self.rows)

    @property
    def totals(self) -> Totals:
        def summed(program: Iterable[bool], eager: Iterable[bool]) -> int:
            return sum(row.nbytes for row in self.rows if row.program in program and row.eager in eager)

        yes, no, any_ = (True,), (False,), (True, False)
        return Totals(summed(yes, any_), summed(any_, yes), summed(no, yes), summed(yes, no))

    @property
    def sentences(self) -> list[str]:
        """The totals, and the copies of parameters, as text."""
        totals = self.totals
        said = [
            f"Eager keeps {sizes.told(totals.eager)} for the backward, beside inputs and parameters; this program "
            f"keeps {sizes.told(totals.program)}."
        ]
        if totals.recomputed:
            count = sum(row.eager and not row.program for row in self.rows)
            what = f"{sizes.counted(count, 'value')} of eager's"
            said[0] += f" It keeps {sizes.told(totals.recomputed)} less, because it recomputes or does not need {what}."
        if totals.added:
            said[0] += f" It keeps {sizes.told(totals.added)} that eager does not keep."
        return said + list(self._copies())

    def _copies(self) -> Iterable[str]:
        counts: Counter[tuple[str, str]] = Counter()
        total: Counter[tuple[str, str]] = Counter()
        for row in self.rows:
            if row.program and row.copy_of:
                folded = re.sub(r"(?<![^.])\d{1,9}(?![^.])", "*", row.copy_of), row.dtype.removeprefix("torch.")
                counts[folded] += 1
                total[folded] += row.nbytes
        for (name, dtype), nbytes in total.most_common(_MOST_COPIES):
            count = counts[name, dtype]
            many = f"{count} copies" if count > 1 else "a copy"
            yield f"It keeps {many} of `{name}` in {dtype} for the backward, {sizes.told(nbytes)}."

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _row(self, graph: Graph, node: Node, nbytes: int, program: bool, eager: bool) -> Beside:
        maker = graph.maker(node)
        return Beside(
            node.name,
            nbytes,
            program,
            eager,
            self._copied(graph, maker),
            graph.text(node.value.dtype) if node.value else "",
            maker.target,
            node.module_path,
            node.source.with_code,
        )

    def _copied(self, graph: Graph, node: Node) -> str:
        """The parameter that a node casts."""
        if node.target not in CASTS:
            return ""
        while node.op == "call_function" and node.inputs:
            given = graph.rows[node.inputs[0]]
            if given.op == "call_function" and _storage(given) != _storage(graph.rows[given.inputs[0]]):
                return ""  # a value that was computed
            node = given
        return node.descriptor if self._kinds.get(node.descriptor) in ("parameter", "buffer") else ""


def _storage(node: Node) -> int:
    return node.value.storage if node.is_tensor and node.value is not None else -1


def _of(graph: Graph, wanted: set[int]) -> Iterable[tuple[int, Node]]:
    """The storages, each with the node that makes it."""
    seen: set[int] = set()
    for node in graph.rows:
        storage = _storage(node)
        if storage in wanted and storage not in seen and storage >= 0:
            seen.add(storage)
            yield storage, node


def _eagers(joint: Graph) -> Iterable[tuple[int, Node]]:
    """The storages that the forward makes and the backward reads.

    The new value of a written input is in that input's memory in eager.
    """
    said = zip(joint.outputs, joint.output_descriptors, strict=False)
    written = {name for name, text in said if text.endswith(" after mutation")}
    given = {_storage(node) for node in joint.rows if node.op == "placeholder" or node.name in written}
    read = {
        _storage(joint.rows[i])
        for node in joint.rows
        if node.is_backward and node.op != "output"
        for i in node.inputs
        if not joint.rows[i].is_backward
    }
    return _of(joint, read - given)


def _nbytes(graph: Graph) -> dict[int, int]:
    """The bytes of each storage, up to the end of the last value in it; 0 if a size is symbolic."""
    found: dict[int, int] = {}
    for node in graph.rows:
        value = node.value
        if value is not None and node.is_tensor:
            end = sizes.reach(value.offset, value.shape, value.stride) or 0
            nbytes = end * sizes.element_bytes(graph.text(value.dtype))
            found[value.storage] = max(found.get(value.storage, 0), nbytes)
    return found
