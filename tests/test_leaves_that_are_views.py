"""`torch.arange(4.).view(2, 2).requires_grad_()`: a leaf that is a view of a tensor that does not require grad, and its
views. In eager they are views of that tensor too, so what is taken of them under no_grad does not require grad."""

from __future__ import annotations

import pytest
import torch

import aotviz

INPUTS = {
    "such a leaf": lambda: torch.linspace(-1, 1, 4).view(2, 2).requires_grad_(),
    "a view of such a leaf": lambda: torch.linspace(-1, 1, 8).view(2, 4).requires_grad_()[1].view(2, 2),
    "one of several views of such a leaf": lambda: torch.linspace(-1, 1, 8).view(2, 2, 2).requires_grad_().unbind()[0],
    "another leaf": lambda: torch.linspace(-1, 1, 4).view(2, 2).clone().requires_grad_(),
    "a computation's result": lambda: torch.linspace(-1, 1, 4).view(2, 2).requires_grad_() * 2,
    "a view of a result": lambda: (torch.linspace(-1, 1, 4).requires_grad_() * 2).view(2, 2),
}


def unseen(x):
    with torch.no_grad():
        rows = x.unbind()
    return rows[0] * rows[1]


def unseen_beside(x):
    seen = x.view(4)
    with torch.no_grad():
        row = x[0]
    return seen.sin(), row.sin(), row[:1]


def compiled(fn, door):
    if door == "torch.compile":
        torch._dynamo.reset()
        return torch.compile(fn, backend="aotviz_eager")
    return (
        aotviz.aot_function(fn, lambda graph, _: graph)
        if door == "aot_function"
        else aotviz.compile(fn, backend="eager")
    )


def use(fn, x):
    found = fn(x)
    results = found if isinstance(found, tuple) else (found,)
    gradients = [
        torch.autograd.grad(r.sum(), x, retain_graph=True, allow_unused=True)[0] for r in results if r.requires_grad
    ]
    return [(r.detach().clone(), r.requires_grad, r.is_leaf, r._is_view()) for r in results], gradients


@pytest.mark.parametrize("door", ["aot_function", "aotviz.compile", "torch.compile"])
@pytest.mark.parametrize("fn", [unseen, unseen_beside])
@pytest.mark.parametrize("kind", INPUTS)
def test_what_is_taken_under_no_grad_requires_grad_as_in_eager(kind, fn, door):
    torch.testing.assert_close(use(compiled(fn, door), INPUTS[kind]()), use(fn, INPUTS[kind]()))


def doubled_behind_a_view(x):
    flat = x.view(4)
    with torch.no_grad():
        x.mul_(2)
    return flat.sin()


@pytest.mark.parametrize("door", ["aotviz.compile", "torch.compile"])
@pytest.mark.parametrize("order", [("such a leaf", "another leaf"), ("another leaf", "such a leaf")])
@pytest.mark.parametrize("fn", [unseen, doubled_behind_a_view])
def test_a_call_with_another_kind_of_leaf_is_not_run_by_the_same_program(fn, order, door):
    if fn is doubled_behind_a_view and order[0] == "such a leaf":
        pytest.skip("Dynamo can't trace that write")
    run = compiled(fn, door)
    for kind in order * 2:
        ours, eager = run(INPUTS[kind]()), fn(INPUTS[kind]())
        assert ours.requires_grad == eager.requires_grad
        torch.testing.assert_close(ours, eager)


def test_aot_function_says_that_another_kind_of_leaf_needs_another_program():
    run = compiled(unseen, "aot_function")
    run(INPUTS["such a leaf"]())
    with pytest.raises(RuntimeError, match=r"'x' was a view of a tensor that does not require grad .* now it is not"):
        run(INPUTS["another leaf"]())
    assert "has_no_root(x)" in run.source


def scaled_by_what_is_read_under_no_grad(x):
    with torch.no_grad():
        scale = x.view(-1)[1:].abs().max()
    return x / scale


def linear_under_no_grad(x):
    with torch.no_grad():
        return torch.nn.functional.linear(torch.ones(3, 2), x)


@pytest.mark.parametrize("fn", [scaled_by_what_is_read_under_no_grad, linear_under_no_grad])
def test_a_view_that_autograd_does_not_get_to_see_asks_for_no_other_program(fn):
    run = compiled(fn, "aot_function")
    for kind in ("another leaf", "such a leaf", "a view of such a leaf", "a view of a result"):
        torch.testing.assert_close(use(run, INPUTS[kind]()), use(fn, INPUTS[kind]()))
    assert "has_no_root" not in run.source


def test_a_call_for_inference_looks_at_no_weight():
    run = compiled(lambda x, w: torch.nn.functional.linear(x, w).relu(), "aot_function")
    with torch.no_grad():
        run(torch.ones(3, 2), torch.ones(4, 2, requires_grad=True))
    assert "has_no_root" not in run.source
