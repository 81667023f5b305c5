"""Why a backward was captured again, in words and with what to do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import aotviz


@pytest.fixture
def step():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.GELU(), nn.Linear(8, 3)))
    aotviz.compiled_autograd.reset()
    block = aotviz.compiled_autograd(backend="eager")

    def run(rows=3, activation=None, zero=True, hook=False):
        if zero:
            model.zero_grad()
        y = model(torch.randn(rows, 4))
        y = y if activation is None else activation(y)
        handle = model[0].weight.register_hook(lambda g: g) if hook else None
        with block as recording:
            y.square().sum().backward()
        if handle is not None:
            handle.remove()
        return recording

    yield run
    aotviz.compiled_autograd.reset()


def told(recording):
    *_, row = recording.recompiles().itertuples()
    return row.why, row.fix


def test_another_autograd_node(step):
    step(activation=torch.sin)
    why, fix = told(step(activation=torch.cos))
    assert "node 4 of the autograd graph was `SinBackward0` and is now `CosBackward0`" in why
    assert "once for each autograd graph" in fix


def test_one_node_more(step):
    step()
    why, _ = told(step(activation=torch.sin))
    assert "the autograd graph has a node 4, `SinBackward0`" in why
    assert "other guard" not in why


def test_a_gradient_that_is_added_to(step):
    step()
    why, fix = told(step(zero=False))
    assert "`1.1.weight.grad` was None and is now a tensor" in why
    assert "optimizer.zero_grad()" in fix


def test_a_hook_by_the_name_of_its_leaf(step):
    step()
    why, fix = told(step(hook=True))
    assert "the number of gradient hooks at AccumulateGrad of 0.weight was 0 and is now 1" in why
    assert "Register the hooks once" in fix


def test_a_size_and_that_it_is_a_symbol_from_now_on(step):
    step(rows=3)
    recording = step(rows=5)
    why, fix = told(recording)
    assert "which the backward reads, had size 3 and now has size 5" in why
    assert "mark_dynamic" not in fix
    assert "aotviz.compiled_autograd(dynamic=True)" in fix
    step(rows=7)
    assert len(recording.recompiles()) == 1


def test_a_number_that_a_node_keeps():
    aotviz.compiled_autograd.reset()
    x, block = torch.ones(2, 5, requires_grad=True), aotviz.compiled_autograd(backend="eager")
    for k in range(2):
        x.grad = None
        with block as recording:
            torch.tensor_split(x, [1, 2, 3], dim=1)[k].sum().backward()
    assert "a number that the autograd node `SliceBackward0` keeps changed" in told(recording)[0]


def test_the_nearest_earlier_capture_is_the_one_with_the_fewest_differences():
    aotviz.compiled_autograd.reset()
    linear, t, block = nn.Linear(3, 3), nn.Parameter(torch.ones(1)), aotviz.compiled_autograd(backend="eager")
    for rows in (2, 2, 4):
        batch = torch.randn(rows, 3)
        loss = (linear(batch).tanh() * t).sum()
        with block as recording:
            loss.backward()
    *_, row = recording.recompiles().itertuples()
    assert row.subject == "batch.shape[0]"
    assert row.also == ()
    assert row.earlier == recording[2].id  # the one that adds to gradients, too
    nearest, first = recording.compilations[-2].data.because
    assert nearest == "the backward keeps batch, whose size 0 was 2 and is 4"
    assert "t.grad was None and is a tensor; also weight.grad was None" in first
    assert first.endswith(nearest)
    assert "number of dimensions" not in first


def test_sizes_that_are_symbols_in_the_earlier_capture_are_no_reason(step):
    for rows in (3, 5):
        step(rows=rows)
    why, _ = told(step(rows=7, activation=torch.sin))
    assert "the autograd graph has a node 4, `SinBackward0`" in why
    assert "size" not in why


def test_another_activation_is_compared_with_the_capture_that_had_it(step):
    step(rows=3, activation=torch.sin)
    step(rows=3, activation=torch.cos)
    step(rows=5, activation=torch.sin)
    why, _ = told(step(rows=6, activation=torch.cos))
    assert "had size 3 and now has size 6" in why
    assert "SinBackward0" not in why


def test_captures_that_were_dropped(step):
    step()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = torch.ones(2, requires_grad=True)
        with aotviz.compiled_autograd(backend="eager"):
            (x * 2).sum().backward()
    why, fix = told(step())
    assert "all captures were dropped since" in why
    assert "autocast" in fix


def test_what_the_engine_runs_is_in_the_explanation(step):
    x = torch.ones(2, requires_grad=True)
    with aotviz.compiled_autograd(backend="eager") as recording, pytest.warns(aotviz.RanInEager):
        torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    assert "ran in eager: its gradients are differentiated again" in str(recording.explain())
    assert "test_whole_backwards.py" in str(recording.explain())


def test_a_recompile_names_the_line_that_began_the_backward(step):
    for rows in (3, 5):
        recording = step(rows=rows)
    step(rows=7, activation=torch.sin)
    found = [*recording.recompiles().itertuples()]
    assert len(found) >= 2
    assert all(row.code == "y.square().sum().backward()" for row in found)
    assert all("test_whole_backwards.py:" in row.place for row in found)


def test_the_line_of_a_part_that_is_compiled_again():
    block = aotviz.compiled_autograd(backend="eager", dynamic=True)
    for n in (3, 1):
        x = torch.ones(n, requires_grad=True)
        with block as recording:
            (x * x).sum().backward()
    (row,) = recording.recompiles().itertuples()
    assert row.code == "(x * x).sum().backward()"
    assert "test_whole_backwards.py:" in row.place


def test_sizes_of_a_captured_backward_are_of_no_export() -> None:
    torch._dynamo.reset()
    aotviz.compiled_autograd.reset()
    w = torch.ones(3, requires_grad=True)
    with aotviz.watch() as recording:
        for rows in (2, 3):
            with aotviz.compiled_autograd(backend="eager"):
                (w * torch.ones(rows, 3)).sum().backward()
    assert {one.kind for one in recording}.isdisjoint({"export", "draft export"})
    assert "xport" not in str(recording.explain())
