"""The graphs that viewers are measured on are what they say."""

from __future__ import annotations

import pytest

from benchmarks import model_explorer, synthetic_graphs


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


def test_an_inference_is_a_chain_without_a_backward() -> None:
    data = synthetic_graphs.recording("net", 200, blocks=60, training=False).data
    (graph,) = data.compilations[0].graphs
    assert len(graph.op) == 200
    assert data.compilations[0].kind == "inference"
    assert set(graph.backward) == {"0"}


@pytest.mark.parametrize("kind", model_explorer.KINDS)
def test_model_explorer_is_given_the_same_graph_in_the_same_boxes(kind: str) -> None:
    recording = synthetic_graphs.recording("net", 200, model_explorer.KINDS[kind], training=kind == "training")
    (given,) = model_explorer.converted(recording)["graphs"]
    assert len(given["nodes"]) == 200
    assert len({node["namespace"].split("/")[0] for node in given["nodes"] if node["namespace"]}) == 60
    names = {node["id"] for node in given["nodes"]}
    assert all(edge["sourceNodeId"] in names for node in given["nodes"] for edge in node["incomingEdges"])
    edges = sum(len(node["incomingEdges"]) for node in given["nodes"])
    (role,) = recording[0].data.stages[0].graphs
    assert edges == sum(len(users) for users in recording[0].graph(role).nodes.users)
