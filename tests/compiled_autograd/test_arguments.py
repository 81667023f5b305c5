"""How `aotviz.compiled_autograd` is called: as a block and a decorator, in threads, and with each of its arguments."""

from __future__ import annotations

import gc
import re
import threading
import weakref

import pytest
import torch
from torch import nn

import aotviz
from aotviz.frontends.backwards import MOST_SETTINGS
from aotviz.whole_backward import engine
from tests.compiled_autograd.programs import leaf


@pytest.fixture(autouse=True)
def forget():
    aotviz.compiled_autograd.reset()
    yield
    aotviz.compiled_autograd.reset()


def backward():
    x = leaf(3)
    (x.sin() * x).sum().backward()
    assert torch.equal(x.grad, x.cos() * x + x.sin())


def as_it_is(graph_module, example_inputs):
    return graph_module


def test_a_decorator_needs_no_arguments():
    @aotviz.compiled_autograd
    def step(x):
        """The docstring."""
        return engine._thread.setting

    assert step(1) is not None
    assert (step.__name__, step.__doc__) == ("step", "The docstring.")
    assert engine._thread.setting is None


def test_a_decorator_with_a_backend_captures_at_each_call():
    graphs = []

    @aotviz.compiled_autograd(backend=lambda graph, inputs: graphs.append(graph) or graph)
    def step():
        backward()

    step()
    step()
    assert len(graphs) == 1


def test_a_decorated_function_may_call_itself():
    @aotviz.compiled_autograd(backend="eager")
    def step(depth):
        if depth:
            step(depth - 1)
        assert engine._thread.setting is not None
        backward()

    step(2)
    assert engine._thread.setting is None


def generator():
    yield 1


async def coroutine():
    pass


async def asynchronous_generator():
    yield 1


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (generator, "generator is a generator function, whose body runs after the call. Write `with aotviz"),
        (coroutine, "coroutine is an async function, whose body runs after the call"),
        (asynchronous_generator, "asynchronous_generator is an async function"),
        (nn.Linear(2, 2), "takes a function that calls backward(), not the module Linear"),
        (3, "takes a function that calls backward(), not 3"),
        (nn.Linear, "takes a function that calls backward(), not <class"),
        ("eager", "the backend is passed by its name: aotviz.compiled_autograd(backend='eager')"),
    ],
)
def test_what_is_no_function_that_calls_backward_is_refused(fn, told):
    for decorator in (aotviz.compiled_autograd, aotviz.compiled_autograd(backend="eager")):
        with pytest.raises(TypeError, match=re.escape(told)):
            decorator(fn)


@pytest.mark.parametrize("kind", ["block", "decorator"])
def test_a_block_that_two_threads_share_gives_each_its_own_setting_back(kind):
    block = aotviz.compiled_autograd(backend="eager")
    second_is_in, first_is_out = threading.Event(), threading.Event()
    after = {}

    def within(body):
        if kind == "decorator":
            block(body)()
        else:
            with block:
                body()

    def first():
        with aotviz.compiled_autograd(backend=as_it_is):
            before = engine._thread.setting
            within(lambda: [second.start(), second_is_in.wait(30)])
            after["first"] = engine._thread.setting is before
            first_is_out.set()

    def later():
        within(lambda: [second_is_in.set(), first_is_out.wait(30)])
        after["second"] = engine._thread.setting is None

    second = threading.Thread(target=later)
    first()
    second.join()
    assert after == {"first": True, "second": True}


def test_without_a_recording_the_context_gives_none():
    with aotviz.compiled_autograd(backend="eager", options={"record": False}) as recording:
        backward()
    assert recording is None


def test_on_stage_hears_the_stages_of_the_backward_and_of_its_parts():
    heard = []

    def on_stage(name, elapsed_ns):
        heard.append((name, elapsed_ns is not None))

    for _ in range(2):
        with aotviz.compiled_autograd(backend="eager", options={"on_stage": on_stage}):
            backward()
    assert heard[:2] == [("capture", False), ("capture", True)]
    assert [name for name, ended in heard if ended].count("replay") == 1
    assert ("link", True) in heard


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"backend": "nonsense"}, ValueError, "backend is 'nonsense'; it can be 'inductor', 'eager' or a callable"),
        ({"backend": nn.Linear(2, 2)}, ValueError, "backend is the module Linear; it can be"),
        ({"mode": "nope"}, ValueError, "mode is 'nope'; it can be 'default'"),
        ({"dynamic": "yes"}, ValueError, "dynamic is 'yes'; it can be True, False or None"),
        ({"options": [1]}, TypeError, "options is [1]; it maps"),
        ({"options": {"colour": 1}}, ValueError, "no option 'colour'"),
    ],
)
def test_a_wrong_argument_is_named(arguments, error, told):
    with pytest.raises(error, match=re.escape(told)):
        aotviz.compiled_autograd(**arguments)
    with pytest.raises(error, match=re.escape(told)):
        aotviz.compile(backward, **arguments)


class Unhashable:
    """A backend that equals all others of its kind."""

    def __init__(self):
        self.graphs = []

    def __eq__(self, other):
        return isinstance(other, Unhashable)

    def __call__(self, graph_module, example_inputs):
        self.graphs.append(graph_module)
        return graph_module


def test_a_backend_without_a_hash_is_found_by_its_identity():
    one, other = Unhashable(), Unhashable()
    for backend in (one, other, one, other):
        with aotviz.compiled_autograd(backend=backend):
            backward()
    assert (len(one.graphs), len(other.graphs)) == (1, 1)


class Compiles:
    def __init__(self):
        self.graphs = []

    def graph(self, graph_module, example_inputs):
        self.graphs.append(graph_module)
        return graph_module


def test_a_bound_method_is_one_backend_at_every_step():
    compiles = Compiles()
    for _ in range(3):
        with aotviz.compiled_autograd(backend=compiles.graph):
            backward()
    assert len(compiles.graphs) == 1


@pytest.mark.slow
def test_backends_that_are_made_at_every_step_do_not_stay():
    made = []

    def step():
        backend = Unhashable()
        made.append(weakref.ref(backend))
        with aotviz.compiled_autograd(backend=backend):
            backward()

    for _ in range(3 * MOST_SETTINGS):
        step()
    gc.collect()
    assert sum(one() is not None for one in made) <= MOST_SETTINGS + 1  # C++ keeps the first for another compiler
    captured = []
    for _ in range(MOST_SETTINGS):
        with aotviz.compiled_autograd(backend="eager") as recording:
            backward()
        captured.append(len(recording) > 0)
        step()
    assert captured == [True] + [False] * (MOST_SETTINGS - 1)  # one that is used stays
