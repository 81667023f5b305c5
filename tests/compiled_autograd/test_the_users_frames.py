"""A capture reads the variables of the user's functions for the names of tensors, and leaves nothing there."""

from __future__ import annotations

import sys
import weakref

import pytest
import torch

import aotviz
from aotviz.ir.user_code import variables


@pytest.fixture(autouse=True)
def forget():
    yield
    aotviz.compiled_autograd.reset()


@pytest.fixture
def untraced():
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def backward(loss):
    with aotviz.compiled_autograd(backend="eager") as recording:
        loss.backward()
    return recording


def test_a_tensor_that_the_function_deletes_after_a_capture_is_freed(untraced):
    x = torch.ones(3, requires_grad=True)
    out = x * 2
    freed = weakref.ref(out)
    loss = out.sum()
    recording = backward(loss)
    assert "x" in recording[0].data.stages[-1].code["replay"]
    del out, loss
    assert freed() is None


def test_what_locals_returned_stays_the_users(untraced):
    loss = torch.ones(3, requires_grad=True).sum()
    settings = locals()
    backward(loss)
    assert settings["loss"] is loss


def test_the_variables_of_a_module_and_of_a_class_stay(untraced):
    names = {"backward": backward, "torch": torch}
    exec("x = torch.ones(3, requires_grad=True); backward(x.sum())", names)
    assert names["x"].grad is not None

    class Body:
        x = torch.ones(3, requires_grad=True)
        backward(x.sum())

    assert Body.x.grad is not None


def test_a_debugger_keeps_the_variables_of_the_function_in_which_it_stopped():
    def stopped(frame, event, argument):
        variables(frame)
        return stopped

    def user():
        first = 1
        second = first + 1
        return first + second

    before = sys.gettrace()
    sys.settrace(lambda *call: stopped(*call) if call[0].f_code is user.__code__ else None)
    try:
        found = user()
    finally:
        sys.settrace(before)
    assert found == 3
