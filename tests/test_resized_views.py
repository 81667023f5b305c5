"""`resize_` of an argument that is a view: it may then cover other elements of the caller's tensor."""

from __future__ import annotations

import pytest
import torch

import aotviz
from aotviz.lowerings import run_graph


def written_first(a):
    a[0] = 3
    a.resize_(3, 1)


def all_of_it_is_written_first(a):
    a.mul_(2)
    a.resize_(3, 1)


def written_afterwards(a):
    a.resize_(3, 1)
    a.mul_(2)


def read_afterwards(a):
    a.resize_(3, 1)
    return a * 2


def written_first_and_read(a):
    a[0] = 3
    a.resize_(3, 1)
    return a * 2


def only_resized(a):
    a.resize_(3, 1)


def resized_there_and_back(a):
    a.resize_(3, 1)
    a.resize_(1, 3)
    a.add_(1)


def transposed_before(a):
    a.t_()
    a.add_(1)
    a.resize_(1, 3)
    a.add_(1)


def made_smaller(a):
    a[0] = 3
    a.resize_(1)
    a.add_(1)


def only_transposed(a):
    a[0] = 3
    a.t_()


PROGRAMS = [
    written_first,
    all_of_it_is_written_first,
    written_afterwards,
    read_afterwards,
    written_first_and_read,
    only_resized,
    resized_there_and_back,
    transposed_before,
    made_smaller,
    only_transposed,
]
WRITTEN_BEFORE = [
    written_first,
    all_of_it_is_written_first,
    written_first_and_read,
    transposed_before,
    made_smaller,
]
ARGUMENTS = {
    "a view with gaps": lambda whole: whole[:1].select(2, 2),
    "a view with gaps of a detached alias": lambda whole: whole.detach()[:1].select(2, 2),
    "a view": lambda whole: whole.view(-1)[:3].view(1, 3),
    "a view of a detached alias": lambda whole: whole.detach()[0, :1, :3],
    "a tensor of its own": lambda whole: torch.arange(3.0).view(1, 3),
    "a tensor that owns its memory": lambda whole: torch.arange(3.0)[None].clone(),
}


def facts(function, make):
    whole = torch.arange(24.0).view(2, 3, 4)
    argument = make(whole)
    result = function(argument)
    layout = argument.shape, argument.stride(), argument.storage_offset(), argument._version
    return whole.tolist(), argument.tolist(), layout, result is not None and result.tolist()


def graph(module, _inputs):
    return module


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_a_resized_view_shows_what_it_shows_in_eager(argument, program):
    expected = facts(program, ARGUMENTS[argument])
    assert facts(torch.compile(program, backend="aotviz_eager"), ARGUMENTS[argument]) == expected
    try:
        found = facts(aotviz.aot_function(program, graph, graph), ARGUMENTS[argument])
    except aotviz.Refused:
        assert program in WRITTEN_BEFORE
    else:
        assert found == expected


@pytest.mark.parametrize("size", [(4,), (2, 2), (3, 1)])
def test_an_input_with_gaps_that_covers_another_after_resize_is_never_silently_wrong(size):
    """`narrow` leaves gaps, in which the other input lies."""

    def function(x, y):
        x.resize_(size)
        y.add_(1.5)
        return x.sum()

    found = []
    for fn in (function, aotviz.aot_function(function, run_graph), torch.compile(function, backend="aotviz_eager")):
        base = torch.linspace(-1, 1, 12).reshape(2, 3, 2).clone()
        try:
            found.append((fn(base.narrow(1, 1, 1), base.narrow(1, 2, 1)).item(), base.tolist()))
        except aotviz.Refused as refused:
            found.append(refused.reason)
    assert found[1] == "view is resized"
    assert found[2] == found[0]
