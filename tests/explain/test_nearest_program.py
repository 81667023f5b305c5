"""Of several earlier programs, the reason told is that of the one that came nearest to fitting."""

from __future__ import annotations

import pytest
import torch

import aotviz

pytestmark = pytest.mark.usefixtures("clean_dynamo")


def causes(function, *calls):
    compiled = torch.compile(function, backend="eager")
    with aotviz.watch() as recording:
        for call in calls:
            call(compiled)
    assert set(recording.recompiles().place) <= {"", *(f"{__file__}:{line}" for line in range(1, 99))}
    return list(recording.recompiles()[["subject", "before", "after"]].itertuples(index=False, name=None))


def test_a_program_whose_size_is_symbolic_came_nearer_than_one_of_another_size() -> None:
    found = causes(
        lambda x, n: x.sin() * n,
        lambda f: f(torch.ones(3), 2),
        lambda f: f(torch.ones(4), 2),
        lambda f: f(torch.ones(5), 3),
    )
    assert found[0] == ("x.shape[0]", "3", "4")
    assert found[1] == ("n", "2", "3"), "the second program takes any size"


def test_a_program_made_in_the_same_mode_came_nearer_than_one_made_in_another() -> None:
    def without_gradients(f):
        with torch.no_grad():
            f(torch.ones(3))

    found = causes(
        lambda x: x.sin(),
        lambda f: f(torch.ones(3)),
        without_gradients,
        lambda f: f(torch.ones(3, dtype=torch.float64)),
    )
    assert found[0] == ("grad_mode", "on", "off")
    assert found[1] == ("x.dtype", "float32", "float64"), "the first program differs in the dtype alone"


def branches(x, train, temperature):
    return (x / temperature).softmax(-1) if train else x.argmax(-1)


def test_a_value_for_which_there_is_a_program_is_not_the_cause() -> None:
    x = torch.ones(3)
    found = causes(branches, lambda f: f(x, True, 1.0), lambda f: f(x, False, 1.0), lambda f: f(x, True, 0.5))
    assert {*found} == {("train", "True", "False"), ("temperature", "1.0", "0.5")}


def test_a_layout_for_which_there_is_a_program_is_not_the_cause() -> None:
    a, b = torch.ones(3, 3), torch.ones(3, 3)
    found = causes(lambda x, y: (x.add_(1), x + y)[1], lambda f: f(a, b), lambda f: f(a.t(), b), lambda f: f(a, a))
    assert {subject for subject, *_ in found} == {"x.stride(0)", "x, y"}


def test_settings_are_compared_one_by_one() -> None:
    def under_autocast(f):
        with torch.autocast("cpu"):
            f(torch.ones(3, 3))

    def deterministic(f):
        torch.use_deterministic_algorithms(True)
        f(torch.ones(3, 3))
        torch.use_deterministic_algorithms(False)

    found = causes(lambda x: x @ x, lambda f: f(torch.ones(3, 3)), under_autocast, deterministic)
    assert {subject for subject, *_ in found} == {"deterministic_algorithms", "autocast(cpu)_enabled"}
