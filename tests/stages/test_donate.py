"""donated buffers: which saved tensors the backward may overwrite, each with its reason."""

from __future__ import annotations

import pytest
import torch

from aotviz.torch_private.partitioners import default_partition
from tests.stages.support import evidence, stage_alone

torch.set_num_threads(1)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def views_saved(x):
    y = x.sin()
    return (y.view(-1).exp() * y.view(-1)).sum() + (y * y).sum()


class SavesTwoViews(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.sin()
        ctx.save_for_backward(y[:1], y[1:])
        return y.sum()

    @staticmethod
    def backward(ctx, grad):
        first, second = ctx.saved_tensors
        return torch.cat([first.exp(), second.exp()]) * grad


class GradientIsSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.exp())
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0].view(2, 2)


CASES = {
    "an input": (lambda x: x.sin(), {}, "it shares memory with an input"),
    "an output": (lambda x: x.exp(), {}, "it shares memory with an output"),
    "a view of an output": (lambda x: (x.exp().view(-1).detach(), x.exp().sum())[1] * 1, {}, None),
    "a gradient": (lambda x: GradientIsSaved.apply(x), {}, "a gradient is a view of it"),
    "another saved tensor": (lambda x: SavesTwoViews.apply(x), {}, "another saved tensor shares its memory"),
    "the option": (lambda x: x.sin().exp().sum(), {"donate_buffers": False}, "donate_buffers is off"),
    "nothing": (lambda x: x.sin().exp().sum(), {}, "nothing outside the backward shares its memory"),
}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_each_reason_is_given_where_it_holds(name):
    fn, options, reason = CASES[name]
    _, split = stage_alone("donated buffers", fn, leaf(2, 2), partition_fn=default_partition, **options)
    assert reason in [saved.why_donated for saved in split.saved]
    for saved in split.saved:
        assert saved.donated == (saved.why_donated == "nothing outside the backward shares its memory")


def test_a_number_has_no_memory_to_give():
    def f(x, w):
        return (x @ w).view(x.shape[0] * w.shape[1]).exp()

    _, split = stage_alone("donated buffers", f, leaf(3, 4), leaf(4, 5), dynamic=True)
    assert {s.why_donated for s in split.saved if s.is_symbol} == {"a number has no memory"}


def test_positions_of_donated_inputs_count_symbols_first():
    def f(x, w):
        return (x @ w).view(x.shape[0] * w.shape[1]).exp().sum()

    _, split = stage_alone("donated buffers", f, leaf(3, 4), leaf(4, 5), dynamic=True, partition_fn=default_partition)
    placeholders = list(split.backward_module.graph.find_nodes(op="placeholder"))
    assert split.donated
    for position in split.donated:
        (saved,) = [s for s in split.saved if s.name == placeholders[position].name]
        assert saved.donated


def test_the_reasons_are_evidence_and_the_argument_donates_nothing():
    before, after = stage_alone(
        "donated buffers", lambda x: x.sin().exp().sum(), leaf(2), partition_fn=default_partition
    )
    assert before.donated == ()
    assert len(after.donated) == 1
    assert set(evidence(after)) == {saved.name for saved in after.saved}
    assert [text for text in evidence(after).values() if text.startswith("donated: ")]
