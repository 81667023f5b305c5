"""Gradient hooks on what goes into a compiled call and comes out of it, whoever registers them."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import register_multi_grad_hook

import aotviz
import aotviz.frontends.backend
from aotviz.ir.refusals import Refused
from aotviz.lowerings import run_graph
from tests.doors import alone
from tests.tiers import slow

torch.set_num_threads(1)


def compiled(fn):
    return alone(fn, debug=True)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def run(fn, call, use):
    """What a hook hears, and the gradients of two leaves, when `use(fn, x, w)` has gone back from what it called."""
    heard = []
    fn = fn(heard)
    x, w = leaf(3), leaf(3)
    use(call(fn), x, w)
    return [None if g is None else g.tolist() for g in heard], [
        None if t.grad is None else t.grad.tolist() for t in (x, w)
    ]


def listening(heard, by=2.0):
    def hook(gradient):
        heard.append(gradient)
        return gradient * by

    return hook


def on_an_argument(heard):
    hook = listening(heard)

    def fn(x, w):
        x.register_hook(hook)
        return x * w

    return fn


def on_what_is_returned_as_is(heard):
    hook = listening(heard)

    def fn(x, w):
        x.register_hook(hook)
        return x

    return fn


def on_a_result(heard):
    hook = listening(heard)

    def fn(x, w):
        y = x * w
        y.register_hook(hook)
        return y

    return fn


def on_a_view_that_is_returned(heard):
    hook = listening(heard)

    def fn(x, w):
        y = (x * w)[1:]
        y.register_hook(hook)
        return y

    return fn


def before_a_write(heard):
    hook = listening(heard)

    def fn(x, w):
        x.register_hook(hook)
        x.mul_(w)
        return x * 3

    return fn


def taken_back(heard):
    hook = listening(heard)

    def fn(x, w):
        x.register_hook(hook).remove()
        with x.register_hook(hook):
            return x * w

    return fn


def inside_only(heard):
    def fn(x, w):
        y = x * w
        y.register_hook(lambda gradient: gradient * 5)
        return y.sin()

    return fn


def on_two_tensors_that_are_one(heard):
    hook = listening(heard)

    def fn(x, w):
        return twice(x, x) * w

    def twice(a, b):
        b.register_hook(hook)
        return a * b

    return fn


@pytest.mark.parametrize(
    "fn",
    [
        on_an_argument,
        on_what_is_returned_as_is,
        on_a_result,
        on_a_view_that_is_returned,
        before_a_write,
        taken_back,
        inside_only,
        on_two_tensors_that_are_one,
    ],
)
def test_a_hook_that_the_function_registers_hears_what_it_hears_in_eager(fn):
    def use(call, x, w):
        call(x * 1.5, w).sum().backward()
        other = x * 2.5
        (call(other, w) * 3).sum().backward(retain_graph=True)

    assert run(fn, compiled, use) == run(fn, lambda f: f, use)


def test_a_hook_on_a_result_that_is_written_afterwards_is_on_what_it_was_before():
    def fn(x, w):
        y = x * w
        y.register_hook(lambda gradient: gradient.clamp(max=2.0))
        y.mul_(3)
        return y

    def use(call, x, w):
        call(x, w).sum().backward()

    mine = run(lambda _: fn, compiled, use)
    assert mine == run(lambda _: fn, lambda f: f, use)
    assert mine[1] == [[2.0] * 3, [2.0] * 3]


def test_a_hook_on_a_leaf_stays_after_the_call():
    def use(call, x, w):
        call(x, w)
        call(x, w)
        (x * 7).sum().backward()

    mine = run(on_an_argument, compiled, use)
    assert mine == run(on_an_argument, lambda f: f, use)
    assert mine[0] == [[7.0] * 3, [14.0] * 3]


def test_post_accumulate_hooks_and_retained_gradients_are_the_callers():
    def use(call, x, w):
        y = x * 2
        out = call(y, w)
        out.sum().backward()
        y.grad.add_(out.grad)

    def make(heard):
        def hook(parameter):
            heard.append(parameter.grad.clone())

        def fn(x, w):
            w.register_post_accumulate_grad_hook(hook)
            x.retain_grad()
            out = x * w
            out.retain_grad()
            return out

        return fn

    assert run(make, compiled, use) == run(make, lambda f: f, use)


def test_a_leaf_looks_like_one_inside():
    def fn(x, w):
        assert x.is_leaf
        assert x.grad_fn is None
        assert not (x * w).is_leaf
        assert w.is_leaf is False
        return x * w if x.grad_fn is None else x

    x, w = leaf(3), leaf(3)
    compiled(fn)(x, w * 1).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def uses_an_argument(x, w):
    x.register_hook(lambda gradient: gradient * w)
    return x * w


def keeps_a_list_of_its_own(x, w):
    seen = []
    x.register_hook(lambda gradient: seen.append(gradient))
    return x * w


def returns_a_handle(x, w):
    return x * w, x.register_hook(torch.neg)


@pytest.mark.parametrize("fn", [uses_an_argument, keeps_a_list_of_its_own, returns_a_handle])
def test_a_hook_that_is_good_for_one_call_only_is_refused_by_name(fn):
    with pytest.raises(Refused, match=r"gradient hook on ('x'|a tensor), and (the hook|its handle)") as caught:
        compiled(fn)(leaf(3), leaf(3))
    assert caught.value.reason == "hook that depends on the call"


def test_a_handle_is_of_no_use_after_the_call():
    kept = []

    def fn(x):
        kept.append(x.register_hook(torch.neg))
        return x * 2

    compiled(fn)(leaf(3)).sum().backward()
    with pytest.raises(Refused, match="its handle is used after the call"):
        kept[0].remove()


@pytest.mark.slow
def test_a_hook_inside_on_a_result_that_others_come_from_hears_the_whole_gradient():
    def make(heard):
        hook = listening(heard)

        def fn(x, w):
            y = x * w
            y.register_hook(hook)
            return y, y * 3

        return fn

    def first_only(call, x, w):
        call(x, w)[0].sum().backward()

    def both(call, x, w):
        sum(out.sum() for out in call(x, w)).backward()  # the results are gone by then, and their hooks are not

    for use in (first_only, both):
        assert run(make, compiled, use) == run(make, lambda f: f, use)


def reads_then_writes(a, b):
    v = b * 3
    a.mul_(2)
    return v


def writes_then_reads(a, b):
    a.mul_(2)
    return b * 3


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("fn", [reads_then_writes, writes_then_reads])
def test_a_hook_afterwards_on_one_of_two_that_overlap_hears_all_or_is_refused(fn, which):
    def use(call, x, w):
        y = x * w
        pair = y[:2], y[1:]
        v = call(*pair)
        hooked = pair[which]
        assert hooked.grad_fn is not None
        hooked.register_hook(listening(heard))
        sum(t.sum() for t in (*pair, v)).backward()

    heard = []
    expected = run(lambda _: fn, lambda f: f, use), [g.tolist() for g in heard]
    heard.clear()
    if fn is writes_then_reads and which == 1:  # a gradient passes it inside the graph
        with pytest.raises(Refused, match="an input that shares memory with another has a gradient hook"):
            run(lambda _: fn, compiled, use)
    else:
        assert (run(lambda _: fn, compiled, use), [g.tolist() for g in heard]) == expected


@pytest.mark.parametrize("grown", [False, True])
def test_a_hook_is_not_called_where_no_gradient_comes(grown):
    def fn(x, w):
        return x * 2, w * 3

    def use(call, x, w):
        w.register_hook(lambda gradient: heard.append(gradient) or gradient * 2)
        inner = w * 1.5
        inner.register_hook(lambda gradient: heard.append(gradient) or gradient * 5)
        first, second = call(x, inner if grown else w)
        first.sum().backward(retain_graph=True)
        assert heard == []
        second.sum().backward()
        assert all(type(h).__name__ == "function" for t in (w, inner) for h in t._backward_hooks.values())

    heard = []
    expected = run(lambda _: fn, lambda f: f, use), len(heard)
    heard.clear()
    assert (run(lambda _: fn, compiled, use), len(heard)) == expected


@pytest.mark.parametrize("door", [compiled, lambda fn: torch.compile(fn, backend="aotviz_eager")])
def test_a_hook_on_an_input_that_nobody_holds_is_not_called_where_no_gradient_comes(door):
    heard = []

    def fn(x, w):
        return x * 2, w * 3

    def use(call, x, w):
        def step():
            inner = w * 1.5
            inner.register_hook(lambda gradient: heard.append(gradient) or gradient * 5)
            return call(x, inner)

        torch._dynamo.reset()
        for which in (0, 1):
            step()[which].sum().backward()

    expected = run(lambda _: fn, lambda f: f, use), len(heard)
    heard.clear()
    assert (run(lambda _: fn, door, use), len(heard)) == expected


def test_a_hook_inside_is_not_called_under_torch_compile_where_no_gradient_comes():
    heard = []

    def fn(x, w):
        inner = w * 1.5
        inner.register_hook(lambda gradient: heard.append(gradient.sum()))
        return x * 2, inner * 3

    torch._dynamo.reset()
    call = torch.compile(fn, backend="aotviz_eager")
    for which in (0, 1):
        call(leaf(3), leaf(3))[which].sum().backward()
    assert len(heard) == 1


def test_a_hook_on_an_input_that_is_only_written_is_not_called():
    def fn(x, w):
        with torch.no_grad():
            w[0] = 0.25
        return x * x, w[1:]

    x, w = leaf(3), leaf(3) * 1
    w.register_hook(lambda gradient: gradient * 2)
    out, _ = compiled(fn)(x, w)
    out.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_hook_on_an_input_that_no_gradient_of_the_call_reaches_is_not_called():
    def f(x):
        with torch.no_grad():
            view = x.view_as(x)
        return torch.cat([view, view])  # requires grad, and leads nowhere

    for fn in (f, alone(f)):
        heard = []
        x = torch.ones(2, requires_grad=True)
        x.register_hook(heard.append)
        result = fn(x)
        assert result.requires_grad
        result.sum().backward()
        assert (heard, x.grad) == ([], None)


DOORS = {
    "aot_function": lambda fn: aotviz.aot_function(fn, run_graph, debug=True),
    "aotviz_eager": lambda fn: torch.compile(fn, backend="aotviz_eager", options={"on_refusal": "raise"}),
}


def two_results(x, w, z):
    return x * w, z * 3


def one_from_another(x, w, z):
    hidden = x * w
    return hidden, hidden * 3 + z


def listening_to_several(mode, door, fn, which, used):
    """What a multi-grad hook on arguments and results hears, where the arguments are leaves and where they are not."""
    heard = []

    def hook(gradients):
        heard.append([None if g is None else g.tolist() for g in (gradients if mode == "all" else [gradients])])

    for grown in (False, True):
        x, w, z = (t * 1 if grown else t for t in (leaf(2), leaf(2), leaf(2)))
        results = door(fn)(x, w, z)
        tensors = {"x": x, "w": w, "z": z, "first": results[0], "second": results[1]}
        register_multi_grad_hook([tensors[name] for name in which.split()], hook, mode=mode)
        results[used].sum().backward()
    return heard


@pytest.mark.parametrize("mode", ["all", "any"])
@pytest.mark.parametrize("which", ["x z", "z", "w z first second", "first second", "x second"])
@pytest.mark.parametrize("fn", [two_results, one_from_another])
@pytest.mark.parametrize("door", ["aot_function", slow("aotviz_eager")])
def test_a_hook_on_several_tensors_hears_none_for_those_that_get_no_gradient(door, fn, which, mode):
    torch._dynamo.reset()
    for used in (0, 1):
        expected = listening_to_several(mode, lambda f: f, fn, which, used)
        found = listening_to_several(mode, DOORS[door], fn, which, used)
        if mode == "any":  # which gradient is the first is the engine's choice
            expected, found = len(expected), sum(gradients != [None] for gradients in found)
        assert found == expected


@pytest.mark.parametrize("door", DOORS)
def test_a_hook_is_not_called_without_a_gradient_where_the_program_was_compiled_for_leaves(door):
    torch._dynamo.reset()
    call = DOORS[door](two_results)
    for grown in (False, True, False):
        x, w, z = (t * 1 if grown else t for t in (leaf(2), leaf(2), leaf(2)))
        first, _ = call(x, w, z)
        z.register_hook(lambda gradient: gradient * 5)  # fails with None
        first.sum().backward()
        if not grown:
            loss = call(x, w, z)[0].square().sum()
            torch.autograd.grad(loss, [x, z], create_graph=True, allow_unused=True)[0].sum().backward()


@pytest.mark.parametrize("fn", [two_results, one_from_another])
@pytest.mark.parametrize("door", DOORS)
def test_a_hook_on_a_result_is_not_called_when_only_another_gets_a_gradient(door, fn):
    torch._dynamo.reset()
    for call in (fn, DOORS[door](fn)):
        x, w, z = leaf(2), leaf(2), leaf(2)
        first, second = call(x, w, z)
        second.register_hook(lambda gradient: gradient * 5)  # fails with None
        second.retain_grad()
        first.sum().backward()
        assert second.grad is None
        assert x.grad.tolist() == [1, 1]


MOVES = {"t_": lambda y: y.t_(), "unsqueeze_": lambda y: y.unsqueeze_(0), "mul_": lambda y: y.mul_(3)}


@pytest.mark.parametrize("move", MOVES)
def test_a_hook_on_a_result_that_was_moved_in_place_after_the_call_belongs_to_the_moved_one(move):
    def fn(x):
        return x.sin(), x.cos()

    def heard(call):
        gradients, x = [], torch.tensor([[0.3, 0.7]], requires_grad=True)
        y, z = call(x)
        MOVES[move](y)
        y.register_hook(lambda gradient: gradient * 100).remove()
        y.register_hook(lambda gradient: (gradients.append(gradient), gradient * 2)[1])
        y.retain_grad()
        (y.sum() + z.sum()).backward()
        return [*gradients, y.grad, x.grad]

    torch.testing.assert_close(heard(torch.compile(fn, backend="aotviz_eager")), heard(fn))


def multiplied_unseen_then_moved(x):
    with torch.no_grad():
        x.mul_(2)
    return x.unsqueeze_(0)


def moved_then_used_then_written_unseen(x):
    y = x.unsqueeze_(0) * 3
    x.detach().mul_(2)
    return y


def moved_then_used(x):
    return x.unsqueeze_(0) * 3


MOVED = [multiplied_unseen_then_moved, moved_then_used_then_written_unseen, moved_then_used]


@pytest.mark.parametrize("fn", MOVED)
@pytest.mark.parametrize("retains", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_hooks_from_before_stay_where_they_were_when_autograd_sees_only_moves(fn, retains, late):
    """A hook that is registered later beside them is called with them, and a gradient retained later is another's."""
    heard = []
    for call in (fn, compiled(fn)):
        start = torch.linspace(-1, 1, 4).requires_grad_()
        x = start * 1.5
        x.register_hook(lambda gradient: gradient * 2)
        if retains:
            x.retain_grad()
        y = call(x)
        if late:
            x.register_hook(lambda gradient: gradient * 1.25)
        y.sin().sum().backward()
        heard.append((x.grad if retains else None, start.grad, x.detach(), y.detach(), x._version))
    torch.testing.assert_close(*heard)


def clamped_unseen_then_squeezed_where_nothing_is_to_squeeze(x):
    x.detach().clamp_(min=-0.5)
    return x.squeeze_()


@pytest.mark.parametrize("fn", [MOVED[0], clamped_unseen_then_squeezed_where_nothing_is_to_squeeze])
def test_a_gradient_retained_after_a_move_has_not_passed_hooks_beside_those_from_before(fn):
    found = []
    for call in (fn, compiled(fn)):
        start = torch.linspace(-1, 1, 4).requires_grad_()
        x = start * 1.5
        x.register_hook(lambda gradient: gradient * 2)
        y = call(x)
        y.register_hook(lambda gradient: gradient * 1.25)
        y.retain_grad()
        y.sin().sum().backward()
        found.append((y.grad, start.grad))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("fn", MOVED[1:])
@pytest.mark.parametrize(("method", "arguments"), [("retain_grad", ()), ("register_hook", (lambda gradient: None,))])
def test_a_hook_on_a_moved_input_that_would_miss_what_was_computed_from_it_is_refused(fn, method, arguments):
    x = torch.linspace(-1, 1, 4).requires_grad_() * 1.5
    y = compiled(fn)(x)
    getattr(x, method)(*arguments)
    with pytest.raises(Refused) as caught:
        y.sum().backward()
    assert caught.value.reason == "hook on a result"


def test_an_input_that_retains_its_gradient_is_not_written_after_it_was_moved():
    def f(x):
        x.mul_(2)
        return x.unsqueeze_(0) * 3

    x = torch.linspace(-1, 1, 4).requires_grad_() * 1.5
    x.retain_grad()
    with pytest.raises(Refused) as caught:
        compiled(f)(x)
    assert caught.value.reason == "hook on an alias"
    assert x.shape == (4,)
    assert x._version == 0


def test_a_hook_that_was_registered_and_removed_before_a_move_keeps_the_next_one_where_it_was():
    def fn(x):
        return x * 2, x * 3

    def gradient(call):
        x = torch.ones(3, 3, requires_grad=True)
        y, _ = call(x)
        y.register_hook(lambda gradient: gradient).remove()
        y.t_()
        y.register_hook(lambda gradient: gradient.triu())
        (y * torch.arange(9.0).view(3, 3)).sum().backward()
        return x.grad

    torch.testing.assert_close(gradient(torch.compile(fn, backend="aotviz_eager")), gradient(fn))


def test_a_result_that_is_detached_in_place_may_have_hooks_as_any_leaf():
    hidden, _ = torch.compile(lambda x: (x.sin(), x.cos()), backend="aotviz_eager")(leaf(3))
    hidden.detach_().requires_grad_()
    heard = []
    hidden.register_hook(heard.append)
    hidden.sum().backward()
    torch.testing.assert_close(heard, [torch.ones(3)])
