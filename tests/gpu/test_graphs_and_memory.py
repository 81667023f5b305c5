"""CUDA graphs, and how much memory a step takes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from . import DEVICE
from .test_training_steps import CLOSE, batches, convolutions


def test_cuda_graphs_train_as_eager_does_on_a_gpu():
    module = convolutions()
    other = copy.deepcopy(module)
    compiled = torch.compile(other, backend="aotviz", mode="reduce-overhead")
    counters.clear()
    for k in range(5):  # warm-up, recording, and replays
        x = batches(module)[0] + k
        torch.compiler.cudagraph_mark_step_begin()
        for run in (module, compiled):
            run(x).square().mean().backward()
        gradients = [[p.grad for p in m.parameters()] for m in (module, other)]
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-2, atol=1e-3)
        for m in (module, other):
            m.zero_grad()  # the next replay writes where these gradients are
        del gradients
    assert not counters["inductor"]["cudagraph_skips"]
    torch.testing.assert_close(list(other.buffers()), list(module.buffers()), **CLOSE)


def test_cuda_graphs_replay_with_the_new_inputs_on_a_gpu():
    compiled = torch.compile(lambda x, y: (x @ y).relu() + 1, backend="aotviz", mode="reduce-overhead")
    for k in range(5):
        x, y = (torch.randn(16, 16, device=DEVICE) * (k + 1) for _ in range(2))
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, y).clone(), (x @ y).relu() + 1, **CLOSE)


@pytest.mark.parametrize(("ours", "theirs"), [("aotviz_eager", "aot_eager"), ("aotviz", "inductor")])
def test_a_step_takes_no_more_memory_than_torchs_on_a_gpu(ours, theirs):
    module = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.GELU()))).to(DEVICE)
    peaks = {}
    for backend in (ours, theirs):
        torch._dynamo.reset()
        compiled = torch.compile(module, backend=backend)
        for _ in range(3):
            module.zero_grad()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            compiled(torch.ones(2048, 512, device=DEVICE)).sum().backward()
        peaks[backend] = torch.cuda.max_memory_allocated()
    assert peaks[ours] <= peaks[theirs] * 1.01


def test_buffers_that_the_backward_may_take_are_taken_and_the_gradient_is_right():
    def fn(x, w):
        return (x * w).sin().exp().sum()

    x, w = (torch.randn(64, 64, device=DEVICE, requires_grad=True) for _ in range(2))
    expected = torch.autograd.grad(fn(x, w), (x, w))
    compiled = torch.compile(fn, backend="aotviz")
    for _ in range(3):
        torch.testing.assert_close(torch.autograd.grad(compiled(x, w), (x, w)), expected, **CLOSE)
