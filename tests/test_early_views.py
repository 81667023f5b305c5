"""Views of an input that is a view: they are taken before the graph runs, if the function only changes their shape or
strides, since each such change gives the input a new `grad_fn`."""

from __future__ import annotations

import pytest
import torch

import aotviz
from aotviz.lowerings import run_graph
from tests.doors import alone


def of_a_leaf():
    leaf = torch.linspace(-1.1, 1.3, 6).reshape(2, 3).clone().requires_grad_()
    return leaf, leaf[:, 1:]


def of_a_product():
    leaf = torch.linspace(-1.1, 1.3, 6).reshape(2, 3).clone().requires_grad_()
    return leaf, (leaf * 1)[:, 1:]


def under_no_grad(x):
    view = x[:1]
    with torch.no_grad():
        view.t_()
    return view, (x * x).sin()


def with_grad(x):
    view = x[:1]
    view.unsqueeze_(0)
    return view, (x * x).sin(), view[0]


def two_views(x):
    first, second = x[:1], x[1:]
    with torch.no_grad():
        first.t_()
    second.unsqueeze_(0)
    return first, x * 2, second


def facts(fn, given):
    leaf, x = given()
    results = fn(x)
    (of_x,) = torch.autograd.grad(results[1].sum(), x, retain_graph=True)
    (of_leaf,) = torch.autograd.grad(sum((y * y).sum() for y in results), leaf)
    views = [(y.grad_fn.name(), y._version, y.shape, y.stride()) for y in (results[0], *results[2:], x)]
    return of_x, of_leaf, views


CASES = [
    (under_no_grad, of_a_leaf),
    (under_no_grad, of_a_product),
    (with_grad, of_a_product),
    (two_views, of_a_product),
]


@pytest.mark.parametrize("door", [alone, aotviz.compile], ids=["aot_function", "compile"])
@pytest.mark.parametrize(("fn", "given"), CASES)
def test_gradients_flow_to_the_grad_fn_that_the_input_has_afterwards(fn, given, door):
    options = {} if door is alone else {"backend": "eager"}
    of_x, of_leaf, views = facts(door(fn, **options), given)
    expected = facts(fn, given)
    torch.testing.assert_close((of_x, of_leaf), expected[:2])
    assert views == expected[2]


def test_a_graph_behind_a_break_finds_the_views_too():
    def fn(x):
        view = x[:1]
        with torch.no_grad():
            view.t_()
        y = (x * 2).sin()
        torch._dynamo.graph_break()
        return torch.autograd.grad(y.sum(), x)[0]

    expected = fn(of_a_leaf()[1])
    torch.testing.assert_close(torch.compile(fn, backend="aotviz_eager")(of_a_leaf()[1]), expected)


def test_the_views_stand_before_the_call_in_the_wrapper():
    compiled = aotviz.aot_function(under_no_grad, run_graph)
    compiled(of_a_leaf()[1])
    taken, _, rest = compiled.source.partition("apply(x)")
    assert "t_()" in taken
    assert "t_()" not in rest
