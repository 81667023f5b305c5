"""Tensors that eager's backward reads through a DTensor: the caller's writes to them since the call are seen, and not
checked."""

from __future__ import annotations

import pytest
import torch
from torch._functorch import config
from torch.distributed.tensor import DTensor, Replicate

import aotviz
import aotviz.frontends.backend  # the backends have names from here on
from aotviz.lowerings import run_graph
from tests.one_rank import leaf
from tests.one_rank import mesh as mesh

pytestmark = pytest.mark.xdist_group("ranks")


def by_door(door, f):
    return aotviz.aot_function(f, run_graph) if door == "aot_function" else torch.compile(f, backend=door)


def result_is_written_inside(mesh, x):
    y = x + x
    d = DTensor.from_local(y, mesh, [Replicate()])
    y.add_((d * d.sum()).to_local())
    return (y,)


def result_is_saved(mesh, x):
    y = x + x
    d = DTensor.from_local(y, mesh, [Replicate()])
    return y, (d * d.sum()).to_local()


def input_is_saved(mesh, x):
    d = DTensor.from_local(x, mesh, [Replicate()])
    return x, (d.detach() * d).to_local(), (DTensor.from_local(x * 2, mesh, [Replicate()]) * d.sum()).to_local()


def input_is_written_inside(mesh, x):
    d = DTensor.from_local(x, mesh, [Replicate()])
    y = (d @ d).to_local()
    x.add_(1.0)
    return x, y


WRITTEN = [result_is_written_inside, result_is_saved, input_is_saved, input_is_written_inside]
DOORS = [(door, budget) for door in ("aot_function", "aotviz_eager") for budget in (0.0, 1.0)]


def by_inductor_with_one_budget(programs):
    """By each door with each budget; by Inductor, which compiles what was cut before, with one of them in turns."""
    return [(program, *way) for turn, program in enumerate(programs) for way in (*DOORS, ("aotviz", float(turn % 2)))]


@pytest.mark.parametrize(("function", "door", "budget"), by_inductor_with_one_budget(WRITTEN))
def test_a_backward_reads_a_tensor_with_what_the_caller_wrote_to_it(mesh, function, budget, door):
    """The part that a DTensor saved has a version counter of its own: eager sees the write, and checks nothing."""

    def f(x):
        return function(mesh, x)

    def gradient(fn):
        x = leaf(4)
        results = fn(x * 1.5)
        results[0].mul_(2.0)
        sum(results).sum().backward()
        return x.grad

    with config.patch(activation_memory_budget=budget):
        torch.testing.assert_close(gradient(by_door(door, f)), gradient(f))


VIEWS = [lambda b: (b, b[...]), lambda b: (b[:3], b[1:])]


@pytest.mark.parametrize(("views", "door", "budget"), by_inductor_with_one_budget(VIEWS))
def test_a_backward_reads_what_was_written_through_another_argument(mesh, views, budget, door):
    def f(x, other):
        y = DTensor.from_local(x, mesh, [Replicate()]).sin().to_local()
        with torch.no_grad():
            other.mul_(0.5)
        return other, y

    def gradient(fn):
        x = leaf(4)
        written, y = fn(*views(x * 1.5))
        written.detach().mul_(2.0)
        y.sum().backward()
        return x.grad

    with config.patch(activation_memory_budget=budget):
        torch.testing.assert_close(gradient(by_door(door, f)), gradient(f))
