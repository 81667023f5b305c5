"""What other threads do while a program is compiled: they draw random numbers, seed, and compile themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

import aotviz
from aotviz.ir.refusals import Refused
from aotviz.lowerings import run_graph


@pytest.fixture
def drawing() -> Iterator[list[float]]:
    """What another thread draws from torch's generator, which was seeded with 7, as long as the test runs."""
    drawn: list[float] = []
    stop, started = threading.Event(), threading.Event()
    torch.manual_seed(7)

    def draw() -> None:
        while not stop.is_set():
            drawn.append(torch.rand(()).item())
            started.set()

    thread = threading.Thread(target=draw)
    thread.start()
    started.wait()
    yield drawn
    stop.set()
    thread.join()


def test_another_thread_may_draw_while_a_function_is_compiled(drawing):
    x = torch.ones(3, requires_grad=True)
    for door in range(6):
        if door % 2:
            compiled = aotviz.aot_function(lambda x: (x * 2).sin().cos(), run_graph)
        else:
            compiled = aotviz.compile(lambda x: (x * 2).sin().cos(), backend="eager")
        assert torch.equal(compiled(x), (x * 2).sin().cos())


def test_what_another_thread_draws_meanwhile_is_not_drawn_twice():
    drawn: list[float] = []
    stop = threading.Event()
    torch.manual_seed(7)

    def draw() -> None:
        while not stop.is_set():
            drawn.append(torch.rand(()).item())

    thread = threading.Thread(target=draw)
    thread.start()
    for _ in range(3):
        aotviz.aot_function(lambda x: (x * 2).sin(), run_graph)(torch.ones(3))
    stop.set()
    thread.join()
    torch.manual_seed(7)
    assert drawn == [torch.rand(()).item() for _ in drawn]


@pytest.mark.parametrize(
    "seed",
    [
        lambda: torch.manual_seed(3),
        lambda: torch.default_generator.manual_seed(3),
        lambda: torch.default_generator.seed(),
    ],
)
def test_a_function_that_seeds_is_refused_although_another_thread_draws(drawing, seed):
    def f(x):
        seed()
        return x * 2

    with pytest.raises(Refused) as caught:
        aotviz.aot_function(f, run_graph)(torch.ones(3))
    assert caught.value.reason == "random state inside"


def test_another_thread_may_seed_while_a_function_is_compiled():
    other = threading.Thread(target=torch.manual_seed, args=(11,))

    def f(x):
        if not other.ident:
            other.start()
            other.join()
        return x * 2

    resting = threading.Event()
    threading.Thread(target=resting.wait, daemon=True).start()
    assert torch.equal(aotviz.aot_function(f, run_graph)(torch.ones(3)), torch.full((3,), 2.0))
    assert torch.initial_seed() == 11
    resting.set()


def test_threads_compile_at_the_same_time():
    errors: list[BaseException] = []
    barrier = threading.Barrier(3)

    def work(factor: float) -> None:
        x = torch.full((4,), factor, requires_grad=True)
        try:
            barrier.wait()
            for _ in range(2):
                compiled = aotviz.aot_function(
                    lambda x: (torch.nn.functional.dropout(x, 0.0) * factor).sin(), run_graph
                )
                out = compiled(x)
                assert torch.equal(out, (x * factor).sin())
                out.sum().backward()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
