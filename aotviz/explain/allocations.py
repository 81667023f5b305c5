"""Which line of the user's made a tensor of a certain size: where memory ran out, the error has the size alone.

The sizes are those of the graphs: of our own pipeline as they were recorded, of a log as they are printed
(`full: "f32[8, 4]" = …`). A symbolic size has no number, and is passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from aotviz.explain.rows import GRAPH_LINE, Facts
from aotviz.recording import sizes
from aotviz.recording.sources import UNKNOWN, SourceLine

LOGGED = ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "aot_inference_graph")
ROLES = ("dynamo", "inference", "forward", "backward")
PRINTED = re.compile(r"^\s+\w+: \"(?P<dtype>[a-z]++\w*)\[(?P<shape>[\d, ]+)\][^\"]*\" = (?!primals_|tangents_)")
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
ROUNDED = 2 << 20  # bytes: an allocator of a GPU asks for multiples of it


def lines(facts: Facts, wanted: str) -> list[SourceLine]:
    """The lines that made a tensor of this size ("281474976710656 bytes", "20.00 GiB"), each once."""
    count, _, unit = wanted.partition(" ")
    least = most = float(count) * UNITS.get(unit, 0)
    if unit != "bytes":
        least, most = least - ROUNDED - UNITS.get(unit, 0) / 200, most + UNITS.get(unit, 0) / 200
    made = (one for place in range(len(facts.data.compilations)) for one in _made(facts, place))
    return list(dict.fromkeys(line for line, nbytes in made if line.line and least <= nbytes <= most))


def _made(facts: Facts, place: int) -> Iterator[tuple[SourceLine, int]]:
    for kind in LOGGED:
        if text := facts.text(facts.text_of(place, kind)):
            yield from _printed(text)
    for role in ROLES:
        if (graph := facts.graph(place, role)) is not None:
            made = sizes.made_bytes(graph.snapshot, graph.values, graph.strings)
            yield from ((node.source, nbytes or 0) for node, nbytes in zip(graph.rows, made, strict=True))


def _printed(text: str) -> Iterator[tuple[SourceLine, int]]:
    line = UNKNOWN
    for statement in text.splitlines():
        if match := GRAPH_LINE.search(statement):
            line = SourceLine(match["file"], int(match["line"]), match["function"], match["code"].strip())
        elif match := PRINTED.match(statement):
            shape = [int(size) for size in match["shape"].replace(",", " ").split()]
            yield line, math.prod(shape) * sizes.element_bytes(match["dtype"])
