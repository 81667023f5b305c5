"""A watch tells of an export that it succeeded, and what its program does not set."""

from __future__ import annotations

import inspect

import pytest
import torch
import transformers
from torch import nn

import aotviz
from aotviz.torch_private import exporting


class Keeping(nn.Module):
    """Sets attributes in each of the ways there are."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.steps, self.last, self.seen, self.names, self.constant = 0, None, {}, [], [1, 2]

    def forward(self, x):
        self.steps += 1
        self.last = x * 2
        self.seen["mean"] = self.last.mean()
        self.names.append("x")
        self.mean.add_(x.mean())
        return self.last + self.mean + self.constant[0]


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 3), Keeping()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def watched(module, *args, **options):
    with aotviz.watch() as recording:
        program = torch.export.export(module, args, **options)
    return recording.explain(), program


def test_what_a_program_does_not_set_is_what_eager_sets_and_it_does_not() -> None:
    explained, program = watched(Keeping(), torch.ones(3))
    told, success = explained.points
    assert success.text == "Export succeeded."
    eager, exported = Keeping(), program.module()
    eager(torch.ones(3))
    exported(torch.ones(3))
    assert torch.equal(exported.mean, eager.mean)
    assert (eager.steps, len(eager.seen), eager.last is None) == (1, 1, False)
    for name in ("steps", "last", "seen"):
        assert f"`self.{name}` from" in told.text
        assert not getattr(exported, name, None)
    assert "and 1 more" in told.text  # self.names
    lines, first = inspect.getsourcelines(Keeping)
    number = next(number for number, line in enumerate(lines, first) if "steps += 1" in line)
    assert (told.place, told.code) == (f"{__file__}:{number}", "self.steps += 1")
    assert "mean" not in told.text
    assert "constant" not in told.text


def test_a_module_inside_is_named_as_the_user_writes_it() -> None:
    explained, _ = watched(Nested(), torch.ones(3))
    assert "`self.blocks[1].steps` from `0` to `1`" in explained.points[0].text


@pytest.mark.parametrize("strict", [True, False])
def test_an_export_that_sets_nothing_has_succeeded(strict: bool) -> None:
    explained, _ = watched(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.ones(2, 3), strict=strict)
    assert explained.points[0].text == "Export succeeded."
    assert not any(point.fix for point in explained.points)


def test_a_model_of_transformers_that_sets_nothing_has_succeeded() -> None:
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8, use_cache=False)
    explained, _ = watched(transformers.GPT2LMHeadModel(config).eval(), torch.zeros(1, 4, dtype=torch.int64))
    assert "Export succeeded." in [point.text for point in explained.points]
    assert not [point for point in explained.points if "does not set" in point.text]


def test_an_export_that_raised_and_was_caught_is_told() -> None:
    class Branching(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    with aotviz.watch() as recording, pytest.raises(Exception, match="data-dependent"):
        torch.export.export(Branching(), (torch.ones(3),))
    assert "Export failed because it has to know whether" in recording.explain().sentences[0]


def test_after_the_watch_torch_is_as_before() -> None:
    before = vars(exporting._trace).copy()
    outer, inner = aotviz.watch(), aotviz.watch()
    outer.start()
    inner.start()
    outer.stop()
    torch.export.export(Keeping(), (torch.ones(3),))
    assert len(inner.stop().explain().points) == 2
    assert vars(exporting._trace) == before
