"""The line and the name that a cause is told with, where another line or name is nearer at hand."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import aotviz

LOG = logging.getLogger(__name__)


@pytest.fixture(autouse=True)
def _without_programs() -> None:
    torch._dynamo.reset()


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        LOG.info("of shape %s", tuple(x.shape))
        return x + 1


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x * 2


def test_of_two_functions_of_one_name_the_one_that_runs_in_eager_is_told_by_its_place() -> None:
    with aotviz.watch() as recording:
        torch.compile(Encoder(), backend="eager")(torch.ones(3))
    first = recording.explain().points[0]
    begins = Encoder.forward.__code__.co_firstlineno
    assert f"test_lines_of_causes.py:{begins}) runs entirely in eager" in first.text
    assert "This line is of a function that it calls, which is compiled by itself." in first.text
    assert first.code.startswith("LOG.info(")


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.convolution = nn.Embedding(9, 4), nn.Conv1d(4, 4, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding(ids).transpose(1, 2)
        return self.convolution(embedded).relu()


def test_the_bound_of_a_convolution_is_told_at_its_line_and_not_at_the_first_use() -> None:
    tag = torch.compile(Tagger(), backend="eager", dynamic=True)
    with aotviz.watch() as recording, torch.no_grad():
        for rows in (4, 16, 20):
            tag(torch.zeros(rows, 7, dtype=torch.long))
    (point,) = [point for point in recording.explain().points if point.kind == "recompile"]
    assert "has one algorithm for `ids.shape[0]` below 16 and another from there on, and it is now 16" in point.text
    assert point.code == "return self.convolution(embedded).relu()"
    assert point.fix.startswith("Nothing is to be done")


def test_a_branch_on_the_size_itself_is_still_a_branch() -> None:
    step = torch.compile(lambda x: x * 2 if x.shape[0] < 16 else x * 3, backend="eager", dynamic=True)
    with aotviz.watch() as recording:
        for rows in (4, 16, 20):
            step(torch.ones(rows))
    (point,) = [point for point in recording.explain().points if point.kind == "recompile"]
    assert "Move the branch out of the compiled function" in point.fix


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if mask.any():
            x = x.masked_fill(mask, 0.0)
        return x + 1


def test_a_condition_that_reads_a_tensor_is_told_as_the_program_has_it() -> None:
    with aotviz.watch() as recording, pytest.raises(Exception, match="data-dependent"):
        torch.export.export(Masked(), (torch.ones(3), torch.ones(3, dtype=torch.bool)))
    first = recording.explain().points[0]
    assert "it has to know whether `mask.any()` holds while tracing" in first.text
    assert first.code == "if mask.any():"
    assert "u0" not in str(recording.explain())
    assert first.fix.startswith("Keep both sides in the program: `torch.where`")
