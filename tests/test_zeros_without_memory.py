"""The backward of `sgn` and `abs` makes zeros without memory. A kernel that reads them reads from address 0."""

from __future__ import annotations

import pytest
import torch

import aotviz


def step(x, w):
    y = (x @ w).sin()
    return y, y.exp()


def sign(y, z):
    return y.sgn().sum() + z.abs().sum()


def signs(y, z):
    return y.sgn().sum()


def gradients(function, loss, order):
    torch.manual_seed(0)
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    found = torch.autograd.grad(loss(*function(x, w)), [x, w], create_graph=order == 2, allow_unused=True)
    if order == 1:
        return found
    return torch.autograd.grad(sum(one.abs().sum() for one in found), [x, w])


@pytest.mark.parametrize(("loss", "order"), [(sign, 1), (sign, 2), (signs, 1)])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_gradient_of_zeros_without_memory_is_given_memory(backend, loss, order):
    compiled = aotviz.compile(step, backend=backend, cache=False)
    for _ in range(2):
        found = gradients(compiled, loss, order)
        torch.testing.assert_close(found, gradients(step, loss, order), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_input_of_zeros_without_memory_is_given_memory(backend):
    x = torch.randn(4, requires_grad=True)
    (zeros,) = torch.autograd.grad(x.sgn().sum(), x)
    compiled = aotviz.compile(lambda a, b: a.exp() * b, backend=backend, cache=False)
    for a in (zeros, torch.ones(4), zeros):
        result = compiled(a, x)
        torch.testing.assert_close(result, a.exp() * x)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), x), (a.exp(),))
