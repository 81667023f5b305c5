"""Transforms of torch.func inside and around compiled functions: what eager gives, or what eager raises.

Dynamo's own `eager` backend is wrong for each custom Function under a transform that differentiates.
"""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn
from torch.nn.modules import module

import aotviz
from aotviz.lowerings import run_graph
from tests.func_transforms import ALL, INSIDE, Loud, results, same
from tests.releases import fails_at_a_hessian_under_vmap
from tests.tiers import slow

SHORT = (  # those that are run at once; the others take a while
    "grad_of_grad",
    "a_function_of_its_own_under_grad",
    "a_function_of_its_own_under_vmap_of_grad",
    "a_jvp_of_its_own_under_jacfwd",
    "a_function_of_its_own_on_what_grad_gives",
    "vmap_of_hessian",
    "grad_around_a_function_of_its_own",
)
RAISE = ("vmap_of_a_condition_that_is_refused", "a_function_of_its_own_without_a_rule_under_vmap")


pytestmark = pytest.mark.usefixtures("clean_dynamo")


def ours(program):
    return aotviz.compile(program, backend="eager", cache=False)


def by_torch_compile(program):
    return torch.compile(program, backend="aotviz_eager")


def in_both(names):
    """Each program by each door, with and without gradients; but not by each door both with and without."""
    for turn, name in enumerate(names):
        for make in (ours, by_torch_compile):
            row = (name, make, (make is ours) == bool(turn % 2))
            yield row if name in SHORT and make is ours else slow(*row)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "make", "needs_gradients"), in_both(ALL))
def test_a_transform_gives_what_eager_gives(name, make, needs_gradients):
    program, around = ALL[name]
    if name in RAISE:
        with pytest.raises(RuntimeError) as expected:
            results(program, around, needs_gradients)
        with pytest.raises(RuntimeError) as found:
            results(program, around, needs_gradients, make)
        assert str(expected.value)[:40] in str(found.value)
    else:
        expected = results(program, around, needs_gradients)
        found = results(program, around, needs_gradients, make)
        assert len(expected) == len(found)
        assert all(map(same, expected, found)), (expected, found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("needs_gradients", "name"),
    [
        (turn % 2 > 0, name) if name in SHORT else slow(turn % 2 > 0, name)
        for turn, name in enumerate(name for name in ALL if name not in RAISE)
    ],
)
def test_by_aot_function_a_transform_gives_what_eager_gives_or_is_refused_by_name(name, needs_gradients):
    program, around = ALL[name]
    expected = results(program, around, needs_gradients)
    try:
        found = results(program, around, needs_gradients, lambda fn: aotviz.aot_function(fn, run_graph))
    except aotviz.Refused as error:
        refused = error.reason
    else:
        refused = ""
        assert all(map(same, expected, found)), (expected, found)
    assert refused in ("", "tensor is not an argument", "trace inside")


def test_by_aot_function_a_hessian_of_a_closed_over_parameter_names_it():
    weight = nn.Parameter(torch.ones(3))
    f = aotviz.aot_function(lambda x: torch.func.hessian(lambda t: (t * weight).sin().sum())(x), run_graph)
    with pytest.raises(aotviz.Refused, match="uses the tensor 'weight' without taking it as an argument"):
        f(torch.ones(3))


def test_a_refused_transform_leaves_operators_that_record_gradients():
    """An error's traceback holds a guard of torch's `print` of a tensor, until it is collected."""
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(aotviz.Refused, match="traces a part of the program"):
        aotviz.aot_function(lambda x: torch.func.linearize(torch.sin, x)[1](x), run_graph)(x)
    gc.collect()
    assert x.sin().requires_grad


def test_there_are_many():
    assert len(ALL) >= 80


def test_a_function_under_a_transform_ends_the_graph_with_the_reason():
    program = INSIDE["a_function_of_its_own_under_grad"]
    compiled = ours(program)
    results(program, None, False, lambda _: compiled)
    (one,) = (one for one in compiled.recording if one.data.error is not None)
    assert one.data.error.ran_in_eager
    assert one.data.error.message.endswith("runs in eager: Dynamo would lose the backward of Loud inside it")
    assert "func_transforms.py" in one.data.error.place
    assert "the backward of Loud" in " ".join(str(compiled.explain()).split())
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Loud"):
        results(program, None, False, lambda f: torch.compile(f, backend="aotviz_eager", fullgraph=True))


@fails_at_a_hessian_under_vmap
def test_a_transform_at_which_dynamo_fails_runs_in_eager_and_the_recording_says_why():
    program = INSIDE["vmap_of_hessian"]
    compiled = ours(program)
    with pytest.warns(aotviz.RanInEager, match="Dynamo fails inside it: RuntimeError: ") as told:
        results(program, None, False, lambda _: compiled)
    ours_told = [one for one in told if one.category is aotviz.RanInEager]
    assert ours_told[0].filename.endswith("func_transforms.py")
    errors = [one.data.error for one in compiled.recording if one.data.error is not None]
    assert all(error.ran_in_eager for error in errors)
    assert "Dynamo fails inside it" in errors[0].message
    assert "Dynamo fails inside it" in " ".join(str(compiled.explain()).split())
    assert "TorchRuntimeError" not in str(aotviz.verify(program, torch.ones(3), torch.ones(3), torch.ones(2, 3)))


def test_a_tensor_that_a_transform_leaves_behind_is_refused_by_name():
    kept = []
    torch.func.grad(lambda x: (kept.append(x), x.sin().sum())[1])(torch.randn(3))
    (left,) = kept
    with pytest.raises(aotviz.Refused, match="input 'x' was made inside a transform") as caught:
        aotviz.aot_function(lambda x, w: x.cos() * w, run_graph)(left, torch.ones(3))
    assert caught.value.reason == "tensor of a transform"


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_under_torch_compile_such_a_tensor_is_taken_as_operators_take_it(backend):
    def f(x, w):
        return x.cos() * w

    compiled = aotviz.compile(f, backend=backend, options={"on_refusal": "raise"}, cache=False)
    kept = []

    def keep(x):
        kept.append(x)
        return x.sin().sum()

    for _ in range(2):
        torch.func.grad(lambda x: torch.func.grad(keep)(x).sum())(torch.randn(3))
        w = torch.ones(3, requires_grad=True)
        found, expected = compiled(kept[-1], w), f(kept[-1], w)
        torch.testing.assert_close(found, expected)
        assert found.requires_grad
        torch.testing.assert_close(*(torch.autograd.grad(one.sum(), w) for one in (found, expected)))
    assert len(compiled.recording.compilations) == 1


def test_a_backward_that_gets_such_a_tensor_by_itself_is_right_and_verify_says_so():
    checked = aotviz.verify(lambda x: torch.func.vjp(Loud.apply, x)[1](torch.ones_like(x))[0], torch.randn(3))
    assert "lose the backward of Loud" in str(checked)
    assert str(checked).startswith("<lambda>: right")


def test_the_function_that_vjp_returned_is_compiled_alone():
    """Until torch 2.12, torch's own backends give zeros."""
    x = torch.randn(3)
    _, pulled_back = torch.func.vjp(torch.sin, x)
    compiled = torch.compile(lambda g: pulled_back(g * 2)[0], backend="aotviz_eager")
    torch.testing.assert_close(compiled(torch.ones(3)), x.cos() * 2)


@pytest.mark.filterwarnings("ignore::aotviz.RanInEager")
def test_what_is_written_before_such_a_transform_is_written_once():
    def f(x):
        x.add_(1)
        torch._dynamo.graph_break()
        return torch.vmap(torch.func.hessian(lambda t: (t**3).sum()))(x)

    x, y = torch.zeros(2, 3), torch.zeros(2, 3)
    assert torch.equal(ours(f)(x), f(y))
    assert torch.equal(x, y)


HOOKS = {
    "forward hook": lambda module: module.register_forward_hook(lambda m, i, o: o * 2),
    "forward pre-hook": lambda module: module.register_forward_pre_hook(lambda m, i: (i[0] * 2,)),
    "backward hook": lambda module: module.register_full_backward_hook(lambda m, i, o: (i[0] * 2,)),
    "backward pre-hook": lambda module: module.register_full_backward_pre_hook(lambda m, o: (o[0] * 2,)),
}


@pytest.mark.parametrize("make", [ours, by_torch_compile])
@pytest.mark.parametrize("kind", HOOKS)
def test_a_hook_that_is_put_on_a_module_after_the_first_call_is_called(kind, make):
    def run(model):
        x = torch.ones(2, 3, requires_grad=True)
        y = model(x)
        y.sum().backward()
        return [y.detach(), x.grad]

    for position in (0, None):
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        compiled = make(model)
        without = run(compiled)
        handle = HOOKS[kind](model if position is None else model[position])
        assert all(map(torch.allclose, run(compiled), run(model)))
        handle.remove()
        assert all(map(torch.allclose, run(compiled), without))


GLOBAL_HOOKS = {
    "forward hook": lambda: module.register_module_forward_hook(lambda m, i, o: o * 2),
    "forward pre-hook": lambda: module.register_module_forward_pre_hook(lambda m, i: (i[0] * 2,)),
    "backward hook": lambda: module.register_module_full_backward_hook(lambda m, i, o: (i[0] * 2,)),
    "backward pre-hook": lambda: module.register_module_full_backward_pre_hook(lambda m, o: (o[0] * 2,)),
}


@pytest.mark.parametrize("kind", GLOBAL_HOOKS)
def test_a_hook_on_all_modules_that_comes_after_the_first_call_is_called(kind):
    def run(model):
        x = torch.ones(2, 3, requires_grad=True)
        y = model(x)
        y.sum().backward()
        return [y.detach(), x.grad]

    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    compiled = ours(model)
    without = run(compiled)
    handle = GLOBAL_HOOKS[kind]()
    try:
        expected, found = run(model), run(compiled)
    finally:
        handle.remove()
    assert all(map(torch.allclose, found, expected))
    assert not torch.allclose(expected[1], without[1])
    assert all(map(torch.allclose, run(compiled), without))
