"""The compile time as a flame graph: modules by their paths, and the lines in them.

The seconds are those of `compile_time`: of each compilation, shared among the operators of its graph. Equal blocks
are one frame, as there. Logs of torch have no modules; their lines stand below functions.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from aotviz.explain import compile_time
from aotviz.explain.rows import Facts
from aotviz.recording.findings import TimeFrame

NO_LINE = "no operator of yours"  # of compilations without a graph
SMALLEST = 0.001  # of the time; a smaller frame is left out: its parent keeps its seconds
PATH = re.compile(r"[^.]+(?:\.\*)*")  # one module of a path, with the number of equal ones


@dataclass
class Node:
    """A frame while the seconds are added up."""

    name: str
    kind: str = ""
    place: str = ""
    code: str = ""
    seconds: float = 0.0
    ids: dict[str, None] = field(default_factory=dict)  # of the compilations
    below: dict[tuple[str, str], Node] = field(default_factory=dict)


def frames(facts: Facts) -> list[TimeFrame]:
    """A frame comes before those in it, the costliest first; [] where nothing is timed."""
    top = Node("")
    for place in range(len(facts.data.compilations)):
        spent = sum(compile_time.parts_of(facts, place).values())
        if spent <= 0:
            continue
        counts = Counter(compile_time.operators(facts, place))
        if not counts:
            _add([top, _below(top, NO_LINE)], spent, facts.id(place))
        for (line, module, kind), count in counts.items():
            path = [top]
            for name in PATH.findall(compile_time.BLOCK.sub("*", module)):
                path.append(_below(path[-1], name))
            if module:
                path[-1].kind = kind
            elif line.function:
                path.append(_below(path[-1], line.function))
            text = line.code or (str(line) if line.line else NO_LINE)
            path.append(_below(path[-1], text, str(line) if line.line else "", line.code))
            _add(path, spent * count / counts.total(), facts.id(place))
    found: list[TimeFrame] = []
    left = [(node, 0) for node in _by_seconds(top)]
    while left:
        node, depth = left.pop()
        if node.seconds >= SMALLEST * top.seconds:
            found.append(TimeFrame(node.name, depth, node.seconds, node.kind, node.place, node.code, list(node.ids)))
            left += [(child, depth + 1) for child in _by_seconds(node)]
    return found


def _below(node: Node, name: str, place: str = "", code: str = "") -> Node:
    return node.below.setdefault((name, place), Node(name, "", place, code))


def _add(path: list[Node], spent: float, compilation: str) -> None:
    for node in path:
        node.seconds += spent
        node.ids[compilation] = None


def _by_seconds(node: Node) -> list[Node]:
    """The frames in one, the costliest last."""
    return sorted(node.below.values(), key=lambda child: child.seconds)
