"""Errors while a backward is captured, in each of its stages, in its replay and in its hooks: nothing is lost."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from torch import nn

import aotviz
from aotviz.whole_backward import capturing, compiled_parts, dead_nodes, eager_order, engine, replayed
from tests.compiled_autograd.programs import Scaled, leaf
from tests.tiers import slow

pytestmark = pytest.mark.filterwarnings("ignore::aotviz.RanInEager")


class Stop(Exception):
    pass


@pytest.fixture(autouse=True)
def as_before():
    state = torch.autograd._engine_run_backward, torch.autograd.Variable._execution_engine, torch.is_grad_enabled()
    aotviz.compiled_autograd.reset()
    yield
    aotviz.compiled_autograd.reset()
    torch._dynamo.reset()
    now = torch.autograd._engine_run_backward, torch.autograd.Variable._execution_engine, torch.is_grad_enabled()
    assert now == state
    assert torch._C._dynamo.compiled_autograd.set_autograd_compiler(None, False) == (None, False)
    assert torch.autograd.is_multithreading_enabled()


def program(log):
    """A graph with each kind of step, freshly made, and the tensors whose `.grad` it sets."""
    torch.manual_seed(0)
    forward = aotviz.compile(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), backend="eager")
    x, w = leaf(2, 3), leaf(4)
    w.grad = torch.ones(4)
    h = forward(x) * w
    h.register_hook(lambda g: log.append("hook"))
    y = Scaled.apply(h, 2)[0]
    z = y * 1
    z[0].mul_(3)
    y.grad_fn.register_prehook(lambda g: log.append("pre-hook"))
    y.grad_fn.register_hook(lambda i, o: log.append("post-hook"))
    x.register_post_accumulate_grad_hook(lambda p: log.append("accumulated"))
    return z.sum(), (x, w, *forward.parameters())


def backward(failing=None):
    """`.grad` of each leaf, and what the hooks said. If `failing` raises, the backward is called a second time."""
    log = []
    total, leaves = program(log)
    error = None
    with aotviz.compiled_autograd(backend="eager"):
        try:
            total.backward()
        except BaseException as raised:
            error = raised
            log.clear()
            total.backward()
    return [leaf.grad.clone() for leaf in leaves], log, error


@pytest.fixture
def expected():
    log = []
    total, leaves = program(log)
    total.backward()
    return [leaf.grad.clone() for leaf in leaves], log


def failing_at(monkeypatch, owner, name, at, error):
    """Let the `at`th call of a function raise, once. Returns the list of its calls."""
    calls, function = [], getattr(owner, name)

    def raising(*args, **kwargs):
        calls.append(name)
        if len(calls) == at + 1:
            raise error
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, raising)
    return calls


def steps_written():
    """How many steps a capture of the program writes."""
    calls, emit = [], capturing.Capture._emit

    def counting(self, *args):
        calls.append(1)
        return emit(self, *args)

    capturing.Capture._emit = counting
    try:
        backward()
    finally:
        capturing.Capture._emit = emit
    return len(calls)


def same(found, expected):
    gradients, log, _ = found
    for one, other in zip(gradients, expected[0], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert log == expected[1]


@pytest.mark.parametrize(
    ("error", "every"), [(Stop("here"), 15), slow(Stop("here"), 1), slow(KeyboardInterrupt("here"), 3)]
)
def test_wherever_a_capture_fails_the_engine_takes_over_and_nothing_is_lost(monkeypatch, expected, error, every):
    count = steps_written()
    assert count > 20
    for at in range(0, count, every):
        with monkeypatch.context() as patch:
            failing_at(patch, capturing.Capture, "_emit", at, error)
            found = backward()
        same(found, expected)
        assert (found[2] is None) == isinstance(error, Stop)
        same(backward(), expected)  # and the next is captured


@pytest.mark.parametrize("error", [Stop("here"), KeyboardInterrupt("here")], ids=["error", "interrupt"])
@pytest.mark.parametrize(
    "stage",
    [
        (eager_order, "in_eagers_order"),
        (dead_nodes, "has_effects"),
        (compiled_parts, "_lowered"),
        (replayed, "_last_uses"),
    ],
    ids=lambda stage: stage[0].__name__.rpartition(".")[2],
)
def test_an_error_in_a_stage_leaves_the_backward_to_the_engine(monkeypatch, expected, stage, error):
    with monkeypatch.context() as patch:
        assert failing_at(patch, *stage, 0, error) == []
        found = backward()
    same(found, expected)
    assert (found[2] is None) == isinstance(error, Stop)
    same(backward(), expected)


@pytest.mark.parametrize("error", [Stop("mine"), KeyboardInterrupt("mine")], ids=["error", "interrupt"])
@pytest.mark.parametrize("kind", ["hook", "pre-hook", "post-hook", "accumulated", "callback", "function"])
def test_an_error_of_the_users_python_is_raised_as_it_is_and_leaves_what_eager_leaves(kind, error):
    def raising(*_):
        raise error

    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise error

    def run():
        x, w = leaf(3), leaf(3)
        w.grad = torch.ones(3)
        y = (Raises.apply(x) if kind == "function" else x * 2) * w
        if kind == "hook":
            x.register_hook(raising)
        elif kind == "pre-hook":
            y.grad_fn.register_prehook(raising)
        elif kind == "post-hook":
            y.grad_fn.register_hook(raising)
        elif kind == "accumulated":
            x.register_post_accumulate_grad_hook(raising)
        elif kind == "callback":
            queue = torch.autograd.Variable._execution_engine
            x.register_hook(lambda g: torch.autograd.Variable._execution_engine.queue_callback(raising))
            del queue
        with pytest.raises(type(error), match="mine") as caught:
            y.sum().backward()
        assert caught.value is error
        return [x.grad, w.grad]

    torch.manual_seed(0)
    eager = run()
    torch.manual_seed(0)
    with aotviz.compiled_autograd(backend="eager"):
        captured = run()
    for one, other in zip(eager, captured, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


def test_somebody_elses_compiler_is_put_back_after_an_error():
    from torch._dynamo import compiled_autograd

    x = leaf(3)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        before = torch._C._dynamo.compiled_autograd.set_autograd_compiler(None, False)
        torch._C._dynamo.compiled_autograd.set_autograd_compiler(*before)
        x.register_hook(lambda g: 1 / 0)
        with aotviz.compiled_autograd(backend="eager"), pytest.raises(ZeroDivisionError):
            (x * 2).sum().backward()
        assert torch._C._dynamo.compiled_autograd.set_autograd_compiler(None, False)[0] == before[0]
        torch._C._dynamo.compiled_autograd.set_autograd_compiler(*before)
    assert engine._thread.setting is None


def test_a_compiled_forward_under_saved_tensor_hooks_is_captured_where_one_result_has_a_gradient():
    def two(x, w):
        h = (x * w).sin()
        return h.cos() * w, (h * h).exp()

    def gradients(captured):
        x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.clone(), lambda packed: packed):
            one, other = aotviz.compile(two, backend="eager")(x, w)
        with captured:
            one.sum().backward(retain_graph=True)
            other.sum().backward()
        return x.grad, w.grad

    with warnings.catch_warnings():
        warnings.simplefilter("error", aotviz.RanInEager)
        found = gradients(aotviz.compiled_autograd(backend="eager"))
    torch.testing.assert_close(found, gradients(contextlib.nullcontext()))
