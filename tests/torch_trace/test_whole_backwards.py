"""Backwards that torch's own compiled autograd captured, in a log and in a watch."""

from __future__ import annotations

import torch
from torch import nn
from torch._dynamo import compiled_autograd

import aotviz
from tests import corpus


def captured(recording):
    return [one for one in recording if one.kind == "compiled autograd"]


def test_a_log_shows_autograds_nodes_what_they_became_and_where_hooks_are():
    recording = aotviz.read_trace(corpus.folder("compiled_autograd"))
    first = captured(recording)[0]
    assert first.name == "backward"
    visits = first.visits
    assert visits.node[0] == "GraphRoot"
    assert (visits.node == "AccumulateGrad").any()
    names = set(first.graph("compiled autograd").nodes.name)
    assert all(set(steps) <= names for steps in visits.steps)
    assert all(place < len(visits) for waits in visits.waits_for for place in waits)
    assert all(number not in waits for number, waits in enumerate(visits.waits_for))
    owner = {name: place for place, steps in enumerate(visits.steps) for name in steps}
    freed = [name for names in visits.frees for name in names]
    assert len(freed) == len(set(freed)), "each input is freed once"
    assert not set(freed) & set(owner)


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))


def backward(model, rows, dynamic=None):
    model.zero_grad()
    loss = model(torch.randn(rows, 4)).square().mean()
    with compiled_autograd._enable(torch.compile(backend="eager", dynamic=dynamic)):
        loss.backward()


def watched(run):
    torch._dynamo.reset()
    compiled_autograd.reset()
    with aotviz.watch() as watching:
        run()
    compiled_autograd.reset()
    return watching.recording if hasattr(watching, "recording") else watching


def test_a_watch_shows_hooks_and_why_a_backward_was_captured_again():
    model = small()

    def run():
        backward(model, 3)
        model[0].weight.register_hook(lambda g: g * 1)
        backward(model, 3)

    recording = watched(run)
    first, second = captured(recording)
    assert not first.visits.hooks.map(len).any()
    assert second.visits.hooks.map(len).sum() == 1
    (row,) = [row for row in recording.recompiles().itertuples() if row.kind == "hooks"]
    assert "the number of gradient hooks at AccumulateGrad was 0 and is now 1" in row.why


def test_sizes_of_a_captured_graph_are_not_to_be_marked_dynamic():
    model = small()
    recording = watched(lambda: [backward(model, rows, dynamic=False) for rows in (3, 4, 5)])
    rows = [row for row in recording.recompiles().itertuples() if row.compilation.startswith("!0/")]
    assert rows
    for row in rows:
        assert "of the captured backward" in row.why
        assert "mark_dynamic" not in row.fix
        assert "<eval_with_key>" not in row.place
        assert row.function == "backward, by Dynamo"
