"""A program that works on a stream of its own."""

from __future__ import annotations

import pytest
import torch

from . import DEVICE
from .test_training_steps import CLOSE

SIZE = 2048  # large, so that a stream that does not wait reads what is not written yet


@pytest.mark.parametrize("backend", ["aotviz", "aotviz_eager"])
@pytest.mark.parametrize("by", ["streams", "events"])
def test_work_on_a_side_stream_is_waited_for_and_differentiated_on_a_gpu(backend, by):
    def wait(waiting: torch.cuda.Stream, other: torch.cuda.Stream) -> None:
        if by == "streams":
            waiting.wait_stream(other)
        else:
            event = torch.cuda.Event()
            event.record(other)
            event.wait(waiting)

    def f(x, y):
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        product = x @ y
        wait(side, main)
        with torch.cuda.stream(side):
            worked = (product @ y).sin()
        wait(main, side)
        return worked + product

    results = []
    for run in (f, torch.compile(f, backend=backend)):
        torch.manual_seed(0)
        x, y = (torch.randn(SIZE, SIZE, device=DEVICE) / SIZE**0.5 for _ in range(2))
        x.requires_grad_()
        result = run(x, y)
        result.square().mean().backward()
        results.append([result.detach(), x.grad])
    torch.cuda.synchronize()
    torch.testing.assert_close(results[1], results[0], **CLOSE)
