"""The backwards that torch's own compiled autograd captured, as its log prints them.

A printed graph names, in a comment, the autograd node that each line is of: "MulBackward0 (NodeCall 2)". Lines of the
backward of a compiled forward have the user's line there instead, and a prefix in their names ("aot0_mul"), which
belongs to the node whose lines stand before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from aotviz.logs.texts import Texts
from aotviz.recording.captured_visits import ADDS, SETS, Done
from aotviz.recording.graph import Graph
from aotviz.recording.schema import CompilationData, VisitRecord

KIND, NAME, ROLE = "compiled autograd", "backward", "compiled autograd"
MARK = re.compile(r"code: (?P<node>\S.{0,200}?) \(NodeCall (?P<number>\d{1,9})\)")
STEP = re.compile(r"^\s+(?P<name>\w+)(?:: [^=]{1,200})? = (?P<call>.*)$")
COPIED = re.compile(r"(?P<prefix>aot\d+(?:_\d+)?)_")
HOOK = re.compile(r"hook_type = '(?P<kind>\w+)'")
HOOKS = {
    "tensor_pre_hook": "gradient hooks",
    "cpp_tensor_pre_hook": "gradient hooks",
    "pre_hook": "pre-hooks",
    "post_hook": "hooks",
    "post_acc_grad_hook": "post-accumulate-grad hooks",
    "unpack_hook": "unpack hooks",
}
ACCUMULATES = re.compile(r"accumulate_grad\w*\(\w+, (?P<old>\w+)")


@dataclass
class Visit:
    """One autograd node, while a printed graph is read."""

    node: str
    steps: list[tuple[str, str]] = field(default_factory=list)  # (name, call)

    @property
    def hooks(self) -> list[str]:
        kinds = (match["kind"] for _, call in self.steps if (match := HOOK.search(call)))
        return [HOOKS.get(kind, kind) for kind in kinds]

    def done(self) -> Done:
        """What is done at the node, as far as it decides about a new capture."""
        olds = [match["old"] for _, call in self.steps if (match := ACCUMULATES.search(call))]
        return Done(self.node, "", (*self.hooks, *(SETS if old == "None" else ADDS for old in olds)))


def visits(printed: str) -> list[Visit]:
    """The autograd nodes of a printed graph, in the order of their first lines.

    >>> [(one.node, one.steps[0][1]) for one in visits(EXAMPLE)]
    [('SinBackward0', 'cos(getitem)'), ('AccumulateGrad', 'accumulate_grad(getitem_1, None, cos)')]
    """
    found: dict[int, Visit] = {}
    owners: dict[str, int] = {}  # prefix of copied lines -> number of the node
    now = -1
    for line in printed.splitlines():
        mark = MARK.search(line) if "# File: " in line else None
        if mark is not None:
            now = int(mark["number"])
            found.setdefault(now, Visit(mark["node"].rpartition("::")[2]))
        step = STEP.match(line)
        if step is None or now < 0:
            continue
        copied = COPIED.match(step["name"])
        number = now if copied is None else owners.setdefault(copied["prefix"], now)
        found[number].steps.append((step["name"], step["call"].partition(";")[0].strip()))
    return list(found.values())


EXAMPLE = """
    # File: compiled_autograd.py:1582 in set_node_origin, code: SinBackward0 (NodeCall 1)
    cos = cos(getitem);  getitem = None
    # File: compiled_autograd.py:1582 in set_node_origin, code: torch::autograd::AccumulateGrad (NodeCall 2)
    call = accumulate_grad(getitem_1, None, cos);  getitem_1 = cos = None
"""


def lifts_sizes(printed: str) -> bool:
    """Whether a captured backward takes sizes or numbers as inputs: torch lifts those that have changed."""
    return " = sizes[" in printed or " = scalars[" in printed


def with_visits(data: CompilationData, texts: Texts) -> CompilationData:
    """The compilation with the autograd nodes of its captured backward, if it is one."""
    stage = next((one for one in reversed(data.stages) if ROLE in one.graphs), None)
    if stage is None:
        return data
    number = stage.graphs[ROLE]
    graph = Graph(data.graphs[number], data.values, texts, ROLE, stage.name)
    return replace(data, visits=list(_records(visits(texts[data.graph_texts[number]]), graph)))


def _records(found: list[Visit], graph: Graph) -> Iterator[VisitRecord]:
    """The records of visits. What they wait for and free comes from the graph that was parsed from the same text."""
    owner = {name: place for place, visit in enumerate(found) for name, _ in visit.steps}
    nodes = {node.name: node for node in graph.rows}
    last: dict[str, int] = {}  # what C++ lifted -> the visit that reads it last
    reads: list[list[str]] = [
        [graph.rows[i].name for name, _ in visit.steps if name in nodes for i in nodes[name].inputs] for visit in found
    ]
    for place, names in enumerate(reads):
        last |= {name: place for name in names if name not in owner}
    for place, visit in enumerate(found):
        prefix = next((match["prefix"] for name, _ in visit.steps if (match := COPIED.match(name))), "")
        yield VisitRecord(
            node=visit.node,
            subject="",
            steps=[name for name, _ in visit.steps if name in nodes],
            hooks=visit.hooks,
            waits_for=list(dict.fromkeys(owner[name] for name in reads[place] if owner.get(name, place) != place)),
            frees=[name for name in dict.fromkeys(reads[place]) if last.get(name) == place and name not in LISTS],
            parts=[],
            copied=prefix,
        )


LISTS = ("inputs", "sizes", "scalars", "hooks", "packed_data")
