"""Inputs that only a second derivative needs: a backward without `retain_graph` frees them, as saved tensors."""

from __future__ import annotations

import weakref

import pytest
import torch

import aotviz
from aotviz.lowerings import run_graph
from tests.doors import alone

torch.set_num_threads(1)


def loss_and_logits(x, w):
    logits = x @ w
    return (logits.relu() ** 2).mean(), logits


def compiled_for_loss(door):
    return door(lambda x, w: loss_and_logits(x, w)[0])


DOORS = [
    lambda fn: aotviz.compile(fn, backend="eager"),
    lambda fn: torch.compile(fn, backend="aotviz_eager"),
    lambda fn: aotviz.aot_function(fn, run_graph),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_an_input_lives_after_a_backward_only_if_the_graph_is_retained(door, retain, outputs, clean_dynamo):
    fn = compiled_for_loss(door) if outputs == 1 else door(loss_and_logits)
    eager = loss_and_logits
    w = torch.ones(4, 2, requires_grad=True)

    def alive(call):
        x = torch.ones(3, 4)
        held = weakref.ref(x)
        found = call(x, w)
        del x
        (found[0] if isinstance(found, tuple) else found).backward(retain_graph=retain)
        return found, held() is not None

    for call in (fn, fn, eager):
        found, lives = alive(call)
        assert lives == retain
        del found


def test_a_second_derivative_after_a_backward_of_another_result_takes_what_the_caller_holds():
    compiled = alone(lambda x, w: ((x @ w).sin().sum(), (x @ w).cos().sum()))
    x, w = torch.ones(3, 4), torch.ones(4, 2, requires_grad=True)

    def second(call):
        one, other = call(x, w)
        torch.autograd.grad(one, w)
        (gradient,) = torch.autograd.grad(other, w, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), w)

    expected = second(lambda x, w: ((x @ w).sin().sum(), (x @ w).cos().sum()))
    torch.testing.assert_close(second(compiled), expected)


def test_a_second_backward_after_that_raises_as_in_eager():
    compiled = alone(lambda x, w: (x @ w).sin().sum())
    result = compiled(torch.ones(3, 4), torch.ones(4, 2, requires_grad=True))
    result.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        result.backward(create_graph=True)
