"""Random numbers on a GPU: eager's, of the same generator; one mask in the forward and the backward; Philox."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from . import DEVICE


def dropped(x):
    return F.dropout(x.sin(), 0.5) * 2


def recomputed(x):
    return checkpoint(lambda a: F.dropout(a.sin(), 0.5) * 2, x, use_reentrant=False)


def drawn(x):
    return x * torch.rand_like(x) + torch.randn(100, device=x.device) + torch.randint(5, (100,), device=x.device)


def state():
    return torch.cuda.get_rng_state() if DEVICE == "cuda" else torch.get_rng_state()


def outcome(run):
    """The results of three calls with their gradients, and the generator's state after each."""
    torch.manual_seed(3)
    found = []
    for _ in range(3):
        x = torch.ones(100, device=DEVICE, requires_grad=True)
        out = run(x)
        out.sum().backward()
        found += [out.detach(), x.grad, state()]
    return found


@pytest.mark.parametrize("fn", [dropped, recomputed, drawn])
@pytest.mark.parametrize(("backend", "options"), [("aotviz_eager", None), ("aotviz", {"fallback_random": True})])
def test_the_numbers_and_the_state_are_eagers(fn, backend, options):
    found = outcome(torch.compile(fn, backend=backend, options=options))
    torch.testing.assert_close(found, outcome(fn))


@pytest.mark.parametrize("fn", [dropped, recomputed])
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("backend", ["aotviz_eager", "aotviz"])
def test_what_the_forward_drops_has_no_gradient_and_every_call_draws_anew(fn, backend, mode):
    if backend == "aotviz_eager" and mode:
        pytest.skip("the mode is Inductor's")
    compiled = torch.compile(fn, backend=backend, mode=mode)
    masks = []
    for _ in range(4):
        x = torch.ones(1000, device=DEVICE, requires_grad=True)
        out = compiled(x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        kept = out.detach() != 0
        assert torch.equal(kept, gradient != 0)
        assert 300 < int(kept.sum()) < 700
        masks.append(kept.clone())
    assert not any(torch.equal(masks[0], mask) for mask in masks[1:])


@pytest.mark.parametrize("fn", [dropped, drawn])
@pytest.mark.parametrize(("ours", "theirs"), [("aotviz_eager", "aot_eager"), ("aotviz", "inductor")])
def test_seed_and_offset_as_graph_inputs_draw_what_torchs_draw_on_a_gpu(fn, ours, theirs):
    results = []
    with torch._functorch.config.patch(functionalize_rng_ops=True):
        for backend in (ours, theirs):
            torch._dynamo.reset()
            results.append(outcome(torch.compile(fn, backend=backend)))
    torch.testing.assert_close(*results)
    assert not torch.equal(results[0][0], results[0][3])
