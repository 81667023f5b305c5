"""Gradient hooks that a function registers inside: traced, called by Python in each backward, or refused by name."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import register_multi_grad_hook

import aotviz
from aotviz.ir.refusals import Refused
from aotviz.lowerings import run_graph

torch.set_num_threads(1)


def compiled(fn):
    return aotviz.aot_function(fn, run_graph, debug=True)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


SCALE = {"by": 2.0}
HEARD = []


def reads_a_dict(x, w):
    y = x * w
    y.register_hook(lambda gradient: gradient * SCALE["by"])
    return y.sin()


def reads_a_dict_on_a_view(x, w):
    y = (x * w).view(3, 1)
    y.register_hook(lambda gradient: gradient * SCALE["by"])
    return y.sin() @ torch.ones(1, 2)


def appends_to_a_list(x, w):
    y = x * w
    y.register_hook(HEARD.append)
    y.register_hook(lambda gradient: HEARD.append(SCALE["by"]))
    return y.sin()


def decides_by_a_value(x, w):
    def hook(gradient):
        if gradient.abs().max() > 0.5:
            return gradient / gradient.abs().max()
        return None

    y = x * w
    y.register_hook(hook)
    return y.sin() * SCALE["by"]


def several_hooks_on_several_tensors(x, w):
    y = x * w
    y.register_hook(lambda gradient: gradient * 3)
    y.register_hook(lambda gradient: gradient + SCALE["by"])
    z = y.sin()
    z.register_hook(lambda gradient: HEARD.append(gradient) or gradient * SCALE["by"])
    return z * w, y.exp()


def on_several_at_once(x, w):
    y, z, unused = x * w, x.sin(), x.cos()
    register_multi_grad_hook((x, y, z, unused), HEARD.append)
    return y * z


def taken_back_from_several(x, w):
    y = x * w
    register_multi_grad_hook((x, y), HEARD.append).remove()
    return y.sin()


def on_arguments_at_once(x, w):
    register_multi_grad_hook((x, w), HEARD.append)
    return x.sin()


@pytest.mark.parametrize(
    "fn",
    [
        reads_a_dict,
        reads_a_dict_on_a_view,
        appends_to_a_list,
        decides_by_a_value,
        several_hooks_on_several_tensors,
        on_several_at_once,
        taken_back_from_several,
        on_arguments_at_once,
    ],
)
def test_a_hook_inside_that_does_more_than_compute_runs_in_each_backward(fn):
    def use(call):
        HEARD.clear()
        gradients = []
        for by in (2.0, 3.0, 4.0):
            x, w = leaf(3), leaf(3)
            results = call(x, w)
            SCALE["by"] = by
            results = results if isinstance(results, tuple) else (results,)
            sum(result.sum() for result in results).backward()
            gradients += [x.grad, w.grad]
        return HEARD.copy(), gradients

    torch.testing.assert_close(use(compiled(fn)), use(fn), rtol=0, atol=0)


def test_a_recording_says_why_the_backward_is_cut_at_a_hook_inside():
    call = compiled(reads_a_dict)
    call(leaf(3), leaf(3)).sum().backward()
    said = "\n".join(call.recording[0].evidence["reason"])
    assert "Python calls it in each backward, so the backward is split there: it reads the global 'SCALE'" in said


def scaled_by(scale):
    def fn(x):
        y = x * 2
        y.register_hook(lambda gradient: gradient * scale)
        return y.sin()

    return fn


def test_a_hook_inside_that_only_computes_is_part_of_the_graph():
    def make(scale):
        return lambda gradient: gradient.mul(scale).clamp(max=torch.pi)

    def fn(x):
        factor = x.detach() * 2
        y = x * 2
        for hook in (lambda gradient: gradient * factor, torch.neg, make(5.0)):
            y.register_hook(hook)
        return y.sin()

    for each in (fn, scaled_by(3.0)):
        call = compiled(each)
        gradients = []
        for run in (each, call):
            x = leaf(3)
            run(x).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)
        assert "register_hook" not in call.source


def test_a_variable_that_is_assigned_later_is_read_in_each_backward():
    scale = 2.0

    def fn(x):
        y = x * 2
        y.register_hook(lambda gradient: gradient * scale)
        return y * 3

    call = compiled(fn)
    for by in (2.0, 5.0):
        scale = by
        x = leaf(3)
        call(x).sum().backward()
        assert x.grad.tolist() == [6 * by] * 3


def is_written_afterwards(x, w):
    y = x * w
    y.register_hook(lambda gradient: gradient * SCALE["by"])
    y.mul_(3)
    return y.sin()


def is_on_a_leaf_made_inside(x, w):
    y = torch.zeros(3, requires_grad=True)
    y.register_post_accumulate_grad_hook(HEARD.append)
    return (x + y).sin()


def uses_a_tensor_and_a_global(x, w):
    y = x * 2
    y.register_hook(lambda gradient: gradient * w * SCALE["by"])
    return y.sin()


@pytest.mark.parametrize("fn", [is_written_afterwards, is_on_a_leaf_made_inside, uses_a_tensor_and_a_global])
def test_a_hook_inside_that_neither_the_graph_nor_python_can_call_is_refused_by_name(fn):
    with pytest.raises(Refused) as caught:
        compiled(fn)(leaf(3), leaf(3))
    assert caught.value.reason == "hook that depends on the call"


def with_a_backward_hook(hook, pre=False):
    module = torch.nn.Linear(3, 3)
    (module.register_full_backward_pre_hook if pre else module.register_full_backward_hook)(hook)
    return module


MODULE_HOOKS = {
    "only computes": (lambda module, given, came: tuple(gradient * 3 for gradient in given), False),
    "appends to a list": (lambda module, given, came: HEARD.append(1), False),
    "reads the module": (lambda module, given, came: (given[0] * module.weight.sum(),), False),
    "reads a global before": (lambda module, came: (came[0] * SCALE["by"],), True),
}


@pytest.mark.parametrize("name", MODULE_HOOKS)
def test_a_backward_hook_of_a_module_is_traced_or_refused_by_name(name):
    module = with_a_backward_hook(*MODULE_HOOKS[name])
    call_compiled = aotviz.aot_module(module, run_graph)
    if name != "only computes":
        with pytest.raises(Refused, match="on a module") as caught:
            call_compiled(leaf(2, 3))
        assert caught.value.reason == "hook that depends on the call"
        with torch.no_grad():
            torch.testing.assert_close(call_compiled(leaf(2, 3)), module(leaf(2, 3)))
        return
    gradients = []
    for call in (module, call_compiled):
        x = leaf(2, 3)
        call(x).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("where", ["in a list", "in an attribute"])
def test_a_handle_that_outlives_the_call_does_not_seem_to_remove_a_traced_hook(where):
    class Kept:
        handle = None

    kept, handles = Kept(), []

    def fn(x):
        y = x.sin()
        handle = y.register_hook(torch.neg)
        if where == "in a list":
            handles.append(handle)
        else:
            kept.handle = handle
        return y * 2

    out = compiled(fn)(leaf(3))
    with pytest.raises(Refused, match="its handle is used after the call"):
        (handles[-1] if handles else kept.handle).remove()
    out.sum().backward()


def test_a_handle_of_a_traced_hook_is_not_returned():
    with pytest.raises(Refused, match="its handle is returned"):
        compiled(lambda x: (x * 2, x.sin().register_hook(torch.neg)))(leaf(3))


def halves_a_result_that_its_derivative_reads(x):
    y = x.exp()
    y.register_hook(lambda gradient: gradient * 0.5)
    return y


def halves_what_is_not_returned(x):
    return halves_a_result_that_its_derivative_reads(x) * 1


@pytest.mark.parametrize("fn", [halves_a_result_that_its_derivative_reads, halves_what_is_not_returned])
def test_a_second_derivative_hears_the_hook(fn):
    gradients = []
    for call in (fn, compiled(fn)):
        x = torch.tensor([0.3, 0.7], requires_grad=True)
        (gradient,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("listen", [lambda x: x.register_hook(lambda gradient: gradient * 2), torch.Tensor.retain_grad])
def test_a_gradient_that_is_asked_for_inside_goes_through_the_hooks_of_an_argument(is_leaf, listen):
    """Eager calls them inside the function. A trace does not know them, whenever they were registered."""

    def fn(x):
        return torch.autograd.grad((x * 2).sin().sum(), x, create_graph=True)[0] * 1

    def argument():
        return leaf(3) if is_leaf else leaf(3) * 1

    silent, hooked = argument(), argument()
    listen(hooked)
    counts = silent.retains_grad or not hooked.is_leaf or bool(hooked._backward_hooks)
    torch._dynamo.reset()
    behind_dynamo, traced = torch.compile(fn, backend="aotviz_eager"), compiled(fn)
    for x in (silent, hooked):
        torch.testing.assert_close(behind_dynamo(x), fn(x))
    torch.testing.assert_close(traced(silent), fn(silent))
    if counts:
        with pytest.raises(Refused) as error:
            traced(hooked)
        assert error.value.reason == "argument with a hook"
    else:  # a leaf keeps its gradient in any case
        torch.testing.assert_close(traced(hooked), fn(hooked))


def squeezed_leaf(x):
    with torch.no_grad():
        x.squeeze_()
    return torch.autograd.grad((x * 2.0).sin().sum(), x)[0]


@pytest.mark.parametrize("view", [False, True])
def test_a_gradient_of_an_argument_that_changed_shape_inside_is_refused_by_name(view):
    def argument():
        return (leaf(3, 4) * 1.5).narrow(0, 1, 1) if view else leaf(4, 1)

    expected = squeezed_leaf(argument())
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(squeezed_leaf, backend="aotviz_eager")(argument()), expected)
    with pytest.raises(Refused) as error:
        compiled(squeezed_leaf)(argument())
    assert error.value.reason == "metadata op on a view"


def unsqueezed(x):
    with torch.no_grad():
        x.unsqueeze_(0)
    return torch.autograd.grad((x * 2.0).sin().sum(), x)[0]


def test_a_gradient_of_a_leaf_that_changed_shape_without_an_error_is_refused_too():
    """The trace gave it the shape from before the call. A tensor that is no leaf has that shape in eager as well."""
    with pytest.raises(Refused, match=r"'x': a metadata op \(unsqueeze_\)"):
        compiled(unsqueezed)(leaf(2, 3))
    assert compiled(unsqueezed)(leaf(2, 3) * 1.5).shape == unsqueezed(leaf(2, 3) * 1.5).shape == (2, 3)


def removed_before_a_write(x):
    handle = x.register_hook(lambda gradient: gradient + 0)
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    y.mul_(2)
    handle.remove()
    return y


def test_a_hook_that_is_removed_leaves_the_order_of_the_others_and_of_writes():
    """The gradient of the result itself passes no hook of its value from before the write."""
    found = []
    for fn in (removed_before_a_write, compiled(removed_before_a_write)):
        x = leaf(3)
        y = fn(x)
        found.append((torch.autograd.grad(y.sum(), y, retain_graph=True), torch.autograd.grad(y.sum(), x)))
    torch.testing.assert_close(found[1], found[0])


def removed_after_another_storage(x, z):
    handle = x.register_hook(lambda gradient: gradient * 2)
    y = torch.ones(3)
    y.set_(z)
    handle.remove()
    y.add_(1)
    return x * 2, y, z + 0


def test_a_hook_that_is_removed_does_not_hide_another_storage():
    with pytest.raises(Refused) as error:
        compiled(removed_after_another_storage)(leaf(3), torch.zeros(3))
    assert error.value.reason == "alias is given another storage"
