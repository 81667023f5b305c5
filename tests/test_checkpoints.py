"""Regions of torch.utils.checkpoint that write: in eager they run again in the backward, in a compiled program once."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.oracle.hard_cases import COMPILERS

OURS = list(COMPILERS)[:2]  # the function, and the backend of torch.compile


def in_a_row(t: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return (t.sin().mul_(2) + p).relu_().exp()


def into_a_new_tensor(t: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    b = torch.zeros_like(t)
    b[0] = t[0] * p
    b += t
    return b.cos()


def after_dropout(t: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(t.sin(), 0.5).mul_(p).tanh()


def through_a_view(t: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    t = t.clone()
    t[:2].mul_(p[:1])
    return t.exp() * p


def a_region_within(t: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return checkpoint(in_a_row, t.cos(), p, use_reentrant=False).mul_(p)


REGIONS = [in_a_row, into_a_new_tensor, after_dropout, through_a_view, a_region_within]


@pytest.mark.parametrize("compiler", OURS)
@pytest.mark.parametrize("reentrant", [False, True], ids=["by hooks", "reentrant"])
@pytest.mark.parametrize("region", REGIONS, ids=lambda region: region.__name__)
def test_a_region_may_write_what_it_made(region: Any, reentrant: bool, compiler: str) -> None:
    def step(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(region, x * 1, p, use_reentrant=reentrant)
        return result.sin()

    def run(fn: Any) -> list[torch.Tensor]:
        x, p = (torch.rand(*s, generator=torch.Generator().manual_seed(0)) + 0.5 for s in [(4, 3), (3,)])
        torch.manual_seed(3)
        out = fn(x.requires_grad_(), p.requires_grad_())
        out.sum().backward()
        return [out.detach(), x.grad, p.grad]  # type: ignore[list-item]

    torch._dynamo.reset()
    for expected, found in zip(run(step), run(COMPILERS[compiler](step)), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("compiler", OURS)
def test_what_a_region_gave_may_be_written_before_the_backward_within_the_function(compiler: str) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(torch.exp, x * 2, use_reentrant=False)  # exp's gradient is what it gave
        return y.mul_(3)

    def run(fn: Any) -> torch.Tensor:
        x = torch.arange(3.0, requires_grad=True)
        fn(x).sum().backward()
        assert x.grad is not None
        return x.grad

    torch._dynamo.reset()
    torch.testing.assert_close(run(COMPILERS[compiler](step)), run(step))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(lambda t: self.norm(self.first(t)).relu_(), x, use_reentrant=False)
        return result


@pytest.mark.parametrize("compiler", OURS)
def test_a_batch_norm_in_a_region_counts_once_and_says_so(compiler: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = Normed(), torch.randn(8, 4)
    once = copy.deepcopy(model)
    once.norm(once.first(x))  # without a backward that runs it again
    eager = copy.deepcopy(model)
    eager(x).square().sum().backward()
    with pytest.warns(UserWarning, match=r"checkpointed region writes .*norm\.running_mean.*a second time"):
        COMPILERS[compiler](model)(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, eager.get_parameter(name).grad)
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer, once.get_buffer(name))
    assert eager.norm.num_batches_tracked == 2
