"""Loops of training leave behind what they leave behind in eager, with a compiled function in them."""

from __future__ import annotations

import pytest
import torch

import aotviz
import aotviz.frontends.backend
from tests.doors import alone
from tests.oracle.compare import same
from tests.oracle.training import LOOPS, loop_named
from tests.tiers import in_turns

DOORS = {
    "compile": lambda fn: aotviz.compile(fn, backend="eager"),
    "torch.compile": lambda fn: torch.compile(fn, backend="aotviz_eager"),
}


@pytest.mark.filterwarnings("error:.* while it runs; a compiled call")
@pytest.mark.parametrize(("name", "door"), in_turns(LOOPS, DOORS, every=2))
def test_a_loop_equals_eager(name, door):
    torch._dynamo.reset()
    expected, found = loop_named(name), loop_named(name, DOORS[door])
    assert found.keys() == expected.keys()
    assert [key for key in expected if not same(expected[key], found[key])] == []


def test_a_loop_on_inductor_is_near_to_eager():
    torch._dynamo.reset()
    expected, found = loop_named("adam"), loop_named("adam", lambda fn: torch.compile(fn, backend="aotviz"))
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5, msg=key)


def test_a_loss_whose_history_the_function_let_go_has_a_backward():
    def loss_and_gradient(x):
        loss = (x * x).sum()
        return loss, torch.autograd.grad(loss, x)

    x = torch.ones(3, requires_grad=True)
    loss, (gradient,) = alone(loss_and_gradient)(x)
    loss.backward()
    assert gradient.tolist() == x.grad.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        alone(lambda x: [loss_and_gradient(x)[0], *twice(x)])(x)


def twice(x):
    loss = (x * x).sum()
    return [torch.autograd.grad(loss, x)[0] for _ in range(2)]
