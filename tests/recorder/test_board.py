"""Nothing in the tables comes from another tensor than the one that the caller passed or got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotviz.ir.refusals import Refused
from aotviz.recorder.placing import Placing
from tests.doors import alone
from tests.oracle import strategy
from tests.oracle.compare import Setup, Trial
from tests.oracle.programs import PROGRAMS
from tests.recorder.board import disagreements

QUICK = [name for k, name in enumerate(PROGRAMS) if k % 8 == 0]


def found(program: Trial) -> list[str]:
    """One line for each false row; none for a program that is refused."""
    try:
        return disagreements(program.builds[0], lambda fn: alone(fn, dynamic=program.dynamic), lambda f: f.recording[0])
    except Refused:
        return []


def at_an_offset(fn: Callable[..., Any]) -> Callable[[], Setup]:
    return lambda: Setup(fn, (torch.arange(24.0).reshape(4, 6)[1:],))


def transposed_after_a_write(x):
    x.add_(1)
    return x.t()


def rows_after_a_write(x):
    x.add_(1)
    return x[:1], x[1:]


def columns_of_a_part_with_gaps(x):
    part = x[:, ::2]
    part.mul_(2)
    return part[1:], part.t()[1:]


def views_of_a_written_view_of_an_intermediate(x):
    part = x.sin()[1:]
    part.add_(1)
    return part[1:], part.t()


def moved_and_returned(x):
    x.t_()
    x.add_(1)
    return x, x[1:]


def moved_view(x):
    part = x[1:]
    part.unsqueeze_(0)
    part.mul_(2)
    return part[0, :, 1:]


def given_other_memory(x):
    y = torch.zeros(2, 3) + x.sum()
    x.set_(y)
    x.add_(1)
    return x[1:], y


AT_AN_OFFSET = [
    transposed_after_a_write,
    rows_after_a_write,
    columns_of_a_part_with_gaps,
    views_of_a_written_view_of_an_intermediate,
    moved_and_returned,
    moved_view,
    given_other_memory,
]


@pytest.mark.parametrize("fn", AT_AN_OFFSET)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_taken_after_a_write_lies_where_the_caller_finds_it(fn, dynamic):
    assert disagreements(at_an_offset(fn), lambda f: alone(f, dynamic=dynamic), lambda f: f.recording[0]) == []


@pytest.mark.parametrize("fn", [transposed_after_a_write, rows_after_a_write, moved_and_returned])
def test_the_test_above_can_fail(fn, monkeypatch):
    monkeypatch.setattr(Placing, "_repeated", lambda self, event, source: None)
    assert disagreements(at_an_offset(fn), alone, lambda f: f.recording[0])


@pytest.mark.parametrize("name", QUICK)
def test_every_row_of_some_programs_is_what_the_caller_has(name):
    assert found(PROGRAMS[name]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in QUICK])
def test_every_row_of_all_other_programs_is_what_the_caller_has(name):
    assert found(PROGRAMS[name]) == []


@pytest.mark.slow
def test_every_row_of_random_programs_is_what_the_caller_has():
    false = {k: rows for k in range(120) if (rows := found(strategy.from_seed(34, k).program))}
    assert false == {}
