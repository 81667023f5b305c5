"""Views that autograd refuses to use, because their base was written after they were taken.

Eager returns such a view, and raises where a gradient is asked for. A graph returns the written base, and the wrapper
takes the view of it, which would be a good one.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

import aotviz


def base_is_written(split, x):
    t = x.sin()
    part = split(t)[0]
    t.mul_(0.5)
    return part


def base_is_written_twice(split, x):
    t = x.sin()
    part = split(t)[0]
    t.mul_(0.5)
    with torch.no_grad():
        t.add_(1)
    return part, t


def base_is_written_without_gradients(split, x):
    t = x.sin()
    part = split(t)[0]
    with torch.no_grad():
        t.mul_(0.5)
    return part


def another_part_is_written(split, x):
    t = x.sin()
    part, other = split(t)[:2]
    with torch.no_grad():
        other.mul_(0.5)
    return part


def a_view_of_the_base_is_written(split, x):
    t = x.sin()
    part = split(t)[0]
    t[:2].mul_(0.5)
    return part


def a_detached_base_is_written(split, x):
    t = x.sin()
    part = split(t)[0]
    t.detach().mul_(0.5)
    return part


def through_data(split, x):
    t = x.sin()
    part = split(t)[0]
    t.data.mul_(0.5)
    return part


def a_view_of_a_part(split, x):
    t = x.sin()
    part = split(t)[0].view(-1)
    t.mul_(0.5)
    return part


def parts_of_a_view(split, x):
    t = x.sin()
    part = split(t.view(-1))[0]
    t.mul_(0.5)
    return part


def taken_before_and_after(split, x):
    t = x.sin()
    before, slice_before = split(t)[0], t[:2]
    t.mul_(0.5)
    return before, slice_before, split(t)[0], t[1:]


def only_saved(split, x):
    t = x.sin()
    made = split(t)[0].sin()
    t.mul_(0.5)
    return made


def read_without_gradients(split, x):
    t = x.sin()
    part = split(t)[0]
    t.mul_(0.5)
    with torch.no_grad():
        return part * 2, t


def of_a_tensor_without_gradients(split, x):
    t = torch.ones(6)
    part = split(t)[0]
    t.mul_(x)
    return part


def an_input_is_written(split, x):
    part = split(x)[0]
    x.mul_(0.5)
    return part


def base_changes_shape(split, x):
    t = x.sin()
    part = split(t)[0]
    t.unsqueeze_(0)
    return part, t


def base_changes_shape_without_gradients(split, x):
    t = x.sin()
    part = split(t)[1]
    with torch.no_grad():
        t.unsqueeze_(0)
    return part


PROGRAMS = [
    base_is_written,
    base_is_written_twice,
    base_is_written_without_gradients,
    another_part_is_written,
    a_view_of_the_base_is_written,
    a_detached_base_is_written,
    through_data,
    a_view_of_a_part,
    parts_of_a_view,
    taken_before_and_after,
    only_saved,
    read_without_gradients,
    of_a_tensor_without_gradients,
    an_input_is_written,
    base_changes_shape,
    base_changes_shape_without_gradients,
]
SPLITS = {
    "chunk": lambda t: t.chunk(2),
    "split": lambda t: t.split(3),
    "unbind": lambda t: t.unbind(),
    "tensor_split": lambda t: t.tensor_split(2),
    "slices": lambda t: (t[:3], t[3:]),
}


def results(function):
    """Per result: its data, its version, and its gradient, or "raises"."""
    x = torch.linspace(0.1, 1, 6, requires_grad=True)
    returned = function(x * 1)
    found = []
    for one in returned if isinstance(returned, tuple) else (returned,):
        found += [one.tolist(), one._version]
        if one.requires_grad:
            try:
                found.append(torch.autograd.grad(one.sum(), x, retain_graph=True)[0].tolist())
            except RuntimeError:
                found.append("raises")
    return found


@pytest.mark.every(5)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("split", SPLITS)
def test_a_stale_view_is_returned_and_refused_by_autograd_as_in_eager(split, program):
    function = partial(program, SPLITS[split])
    expected = results(function)
    for dynamic in (None, True):
        torch._dynamo.reset()
        assert results(torch.compile(function, backend="aotviz_eager", dynamic=dynamic)) == expected
    try:
        found = results(aotviz.aot_function(function, graph, graph))
    except aotviz.Refused:  # its gradient cannot be traced
        assert program is only_saved
        assert "raises" in expected
    else:
        assert found == expected


def test_a_stale_view_that_is_written_after_a_graph_break_is_right():
    """A view taken under no_grad, whose base is written under another mode: autograd refuses to read its grad_fn."""

    def fn(x):
        with torch.no_grad():
            part = x[::2]
        torch._dynamo.graph_break()
        alias = part.view(torch.int32).view(torch.float32)
        alias.add_(part)
        return alias

    x = torch.linspace(0.1, 1, 6, requires_grad=True) * 1
    expected = fn(x.clone())
    torch._dynamo.reset()
    assert torch.equal(torch.compile(fn, backend="aotviz_eager")(x), expected)


def graph(module, _inputs):
    return module
