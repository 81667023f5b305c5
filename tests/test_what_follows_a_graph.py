"""A graph that Dynamo ends before a gradient is asked for gives that gradient, as in eager."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.autograd import grad

import aotviz
from aotviz.frontends import backend
from aotviz.torch_private import versions
from aotviz.torch_private.what_follows import Follows


def penalty(x, w):
    between = x * w
    (found,) = torch.autograd.grad((between.sin() * w).sum(), between, create_graph=True)
    return (found**2).sum()


def of_a_view(x, w):
    view = x.view(-1)
    return torch.autograd.grad(outputs=(view * view).sum(), inputs=[view])[0] * w


def of_a_written_input(x, w):
    x.mul_(w)
    args = (x.sin().sum(), x)
    return grad(*args)[0]


def by_backward(x, w):
    between = x * w
    (between * between).sum().backward(inputs=[between])
    return between.grad


def of_a_part_of_a_tuple(x, w):
    parts = {"first": x * w, "second": x + w}
    found = torch.autograd.grad((parts["first"] * parts["second"]).sum(), tuple(parts.values()))
    return found[0] + found[1]


def forces(x, w):
    energies = (x * w).sin()
    energy = energies.sum()
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    return energies, force


def weights_gradients(x, w):
    features = x * w
    return torch.autograd.grad((features * features).sum(), w)[0] + features.detach()


TRACED_LATER = [penalty, of_a_view, of_a_part_of_a_tuple]
IN_EAGER = [of_a_written_input, by_backward]
IN_EAGER += [] if versions.has("a gradient of an intermediate is traced") else TRACED_LATER


@pytest.mark.parametrize("f", [of_a_written_input, by_backward, *TRACED_LATER, forces, weights_gradients])
def test_the_gradient_that_the_function_asks_for_after_a_graph_is_eagers(f):
    def ran(fn):
        x, w = (torch.linspace(start, 2.0, 3, requires_grad=True) for start in (-1.0, 1.0))
        results = fn(x * 1.0, w)
        results = results if isinstance(results, tuple) else (results,)
        if results[-1].requires_grad:
            results[-1].sum().backward()
        return [one.detach() for one in results], x.grad, w.grad

    backend._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = ran(torch.compile(f, backend="aotviz_eager"))
    torch.testing.assert_close(compiled, ran(f))
    told = [str(one.message) for one in caught if one.category is aotviz.RanInEager]
    assert ["asks for the gradient of" in text for text in told] == [True] * (f in IN_EAGER)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(trace_autograd_ops=True):  # then the gradient is a part of the graph
        torch.testing.assert_close(ran(torch.compile(f, backend="aotviz_eager")), ran(f))


def test_each_fact_about_what_follows_has_words_of_its_own():
    """They are in the key of a program, and `explain` prints them."""
    facts = [
        Follows("assigned"),
        Follows("named"),
        Follows(differentiated=(0, 2)),
        Follows(differentiated=(0,)),
        Follows(is_input_differentiated=True),
        Follows(writes=True),
        Follows(returned=(1,)),
        Follows(returned=(1, 2)),
        Follows(alive=(1,)),
        Follows(writes=True, returned=(1,)),
    ]
    assert len(set(map(str, facts))) == len(facts)
    assert str(facts[-1]) == "after the graph: something is written in place; inputs 1 are returned"


def kept_over_a_break(x, w):
    result = (x * 2).sin() * w
    torch._dynamo.graph_break()
    return result, x


def kept_unused(x, w):
    result = (x[:2] * 2).sin() * w[:2]
    torch._dynamo.graph_break()
    return result, x, w


def kept_in_a_list(x, w):
    part, rest = x[:2], [x, w]
    result = (part * 2).sin() * w[:2]
    torch._dynamo.graph_break()
    return result, rest[0]


def part_of_what_is_returned(x, w):
    part = x[:2]
    torch._dynamo.graph_break()
    return (part * 2).sin() * w[:2], x


KEPT = [kept_over_a_break, kept_unused, kept_in_a_list, part_of_what_is_returned]


@pytest.mark.parametrize("f", KEPT)
def test_what_is_returned_after_a_graph_may_be_written_before_the_backward(f):
    """Eager does not save it, so a backward must not be computed from it."""

    def ran(fn):
        x, w = (torch.linspace(start, 2.0, 3, requires_grad=True) for start in (-1.0, 1.0))
        result, returned, *_ = fn(x * 1.0, w)
        with torch.no_grad():
            returned.fill_(9.0)
        result.sum().backward()
        return x.grad, w.grad

    torch.testing.assert_close(ran(torch.compile(f, backend="aotviz_eager")), ran(f))
