"""The planned memory of a training step in the form in which the workbench gets it.

The nodes are of several compilations, whose texts have other numbers, so the record has a list of texts of its own.
"""

from __future__ import annotations

from aotviz.recording.findings import StepGraph, StepHolder, StepNode, StepRecord
from aotviz.recording.graph import OPS, checkpoint_of
from aotviz.recording.listing import Node
from aotviz.recording.step_memory import StepMemory

_LETTERS = {name: letter for letter, name in OPS.items()}


def record(memory: StepMemory) -> StepRecord:
    """All moments and holders of a step."""
    texts: dict[str, int] = {}
    nodes: dict[tuple[int, int], int] = {}  # by graph and index: the place in `found`
    found: list[StepNode] = []

    def text(one: str) -> int:
        return texts.setdefault(one, len(texts))

    def number(graph: int, node: Node) -> int:
        place = nodes.setdefault((graph, node.index), len(found))
        if place == len(found):
            source = node.source
            found.append(
                StepNode(
                    graph, node.index, _LETTERS[node.op], text(node.name), text(node.target), text(node.descriptor),
                    text(node.module_path), text(source.file), source.line, text(source.code),
                    text(checkpoint_of(memory.graphs[graph].graph.snapshot, node.index)),
                )
            )  # fmt: skip
        return place

    moments = [number(graph, moment.node) for graph, moment in zip(memory.runs, memory.rows, strict=True)]
    holders = []
    for one, (graph, node) in zip(memory.all_holders, memory.made_by, strict=True):
        value = node.value
        dtype, shape = (memory.graphs[graph].graph.text(value.dtype), value.shape) if value is not None else ("", [])
        holders.append(
            StepHolder(
                number(graph, node), text(one.kind), one.nbytes, text(dtype), shape,
                one.made_at, one.held_until, text(one.held_by), text(one.device),
            )
        )  # fmt: skip
    graphs = [StepGraph(one.phase, one.piece.id, one.graph.stage, one.graph.role) for one in memory.graphs]
    return StepRecord([*texts], graphs, found, moments, holders)
