"""The graphs that viewers are measured on are what they say."""

from __future__ import annotations

import pytest

from benchmarks import synthetic_graphs


@pytest.mark.parametrize("nodes", synthetic_graphs.SIZES[:2])
def test_a_synthetic_graph_has_exactly_the_nodes_asked_for_in_both_directions_of_every_block(nodes: int) -> None:
    data = synthetic_graphs.recording("net", nodes).data
    graph = data.compilations[0].graphs[0]
    assert len(graph.op) == len(graph.name) == nodes
    blocks = {
        (data.strings[module].split("\n")[1], backward)
        for module, backward in zip(graph.module, graph.backward, strict=True)
        if module >= 0
    }
    assert len(blocks) == 2 * synthetic_graphs.BLOCKS


def test_a_synthetic_recording_reads_like_any_other() -> None:
    recording = synthetic_graphs.recording("net", 100, blocks=4, stages=2)
    assert "100" in str(recording)
    assert [len(graph.op) for graph in recording[0].data.graphs] == [100, 100]


def test_too_few_nodes_for_the_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 33 are needed"):
        synthetic_graphs.recording("net", 20, blocks=10)
