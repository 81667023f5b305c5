"""Which line of the user's made a tensor of a certain size, or is computed by a kernel: where memory ran out, an error
has the size alone, and where a program of Inductor's raised one, the name of the kernel.

The sizes are those of the graphs: of our own pipeline as they were recorded, of a log as they are printed
(`full: "f32[8, 4]" = …`). A symbolic size has no number, and is passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from aotviz.explain.rows import GRAPH_LINE, Facts
from aotviz.recording import printed_lines, sizes
from aotviz.recording.sources import UNKNOWN, SourceLine

LOGGED = ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "aot_inference_graph")
ROLES = ("dynamo", "inference", "forward", "backward")
CODE = "inductor_output_code"
POST_GRAD = "inductor_post_grad_graph"
NAMED = re.compile(r"^\s+(?P<name>\w+)(?:: .*?)? = ")  # a statement of a printed graph
COUNTED = re.compile(r"_\d+$")  # at the end of the name of a node
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


def of_kernel(facts: Facts, kernel: str) -> list[SourceLine]:
    """The lines that a kernel of Inductor's computes, in the order of its nodes, each once."""
    found: dict[SourceLine, None] = {}
    for place, compilation in enumerate(facts.data.compilations):
        calls = (call for stage in compilation.stages for calls in stage.kernels.values() for call in calls.items())
        wanted = [name for call, nodes in calls if call.rpartition(":")[0] == kernel for name in nodes]
        codes = [code for stage in compilation.stages for code in stage.code.values()]
        artifacts = facts.about(place, facts.data.artifacts)
        codes += [facts.text(one.text) for one in artifacts if facts.text(one.type) == CODE]
        if not wanted and not any(f"{kernel}(" in code for code in codes):
            continue
        lines = _lines_of_nodes(facts, place)
        if not wanted:  # the log has no record of it, but Inductor names a kernel after the operators in it
            wanted = [name for name in lines if f"_{COUNTED.sub('', name)}_" in kernel]
        found.update(dict.fromkeys(lines[name] for name in wanted if name in lines))
    return list(found)


def of_operator(facts: Facts, operator: str) -> SourceLine:
    """The first line that calls an operator of a user's ("my.op"); UNKNOWN if no graph has it."""
    for place in range(len(facts.data.compilations)):
        for artifact in facts.about(place, facts.data.artifacts):
            where, code = printed_lines.line_of_operator(facts.text(artifact.text), operator)
            file, _, line = where.rpartition(":")
            if line:
                return SourceLine(file, int(line), "", code)
        graphs = (graph for role in ROLES if (graph := facts.graph(place, role)) is not None)
        for node in (node for graph in graphs for node in graph.rows):
            if node.source.line and f"{operator}." in f"{node.target}.":
                return node.source
    return UNKNOWN


def _lines_of_nodes(facts: Facts, place: int) -> dict[str, SourceLine]:
    found: dict[str, SourceLine] = {}
    for artifact in facts.about(place, facts.data.artifacts):
        if POST_GRAD in (facts.text(artifact.type), facts.text(artifact.name)):
            line = UNKNOWN
            for statement in facts.text(artifact.text).splitlines():
                if match := GRAPH_LINE.search(statement):
                    line = _source(match)
                elif line.line and (named := NAMED.match(statement)):
                    found[named["name"]] = line
    for role in ROLES:
        if (graph := facts.graph(place, role)) is not None:
            found.update((node.name, node.source) for node in graph.rows if node.source.line)
    return found


def _source(match: re.Match[str]) -> SourceLine:
    return SourceLine(match["file"], int(match["line"]), match["function"], match["code"].strip())


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
            line = _source(match)
        elif match := PRINTED.match(statement):
            shape = [int(size) for size in match["shape"].replace(",", " ").split()]
            yield line, math.prod(shape) * sizes.element_bytes(match["dtype"])
