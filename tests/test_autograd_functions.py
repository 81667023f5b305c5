"""Custom autograd Functions under torch.compile: Dynamo's operator for them, differentiated any number of times."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.autograd.function import once_differentiable

import aotviz
import aotviz.frontends.backend  # the backends have names from here on
from aotviz.lowerings import run_graph


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.exp()


class Mixed(torch.autograd.Function):
    """Saves an input, an output and an output without gradient; keeps a tensor and a number by name."""

    @staticmethod
    def forward(ctx, x, factor):
        y = x.tanh()
        z = y * 2
        ctx.save_for_backward(x, y, z)
        ctx.factor, ctx.kept = factor, x
        ctx.mark_non_differentiable(z)
        return y, z

    @staticmethod
    def backward(ctx, gradient, _):
        x, y, z = ctx.saved_tensors
        return gradient * (1 - y * y) * ctx.factor + ctx.kept * 0.1 + x * z * 0.01, None


class Once(Exp):
    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.exp()


def exponential(x):
    return Exp.apply(x) * x


def mixed(x):
    y, z = Mixed.apply(x, 3.0)
    return y * x + z


def inside_a_branch(x):
    return torch.cond(x.sum() > 0, lambda x: Exp.apply(x) * x, lambda x: x * x, (x,))


def once(x):
    return Once.apply(x) + x * x


class Reverse(torch.autograd.Function):
    """Returns its input as it is, which a trace sees as a view of it."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def derivatives(f, order):
    x = torch.linspace(0.1, 1, 4, requires_grad=True)
    found = [f(x)]
    for _ in range(order):
        (gradient,) = torch.autograd.grad(found[-1].sum(), x, create_graph=True)
        found.append(gradient)
    return found


def both(f, order, backend):
    torch._dynamo.reset()
    return derivatives(f, order), derivatives(torch.compile(f, backend=backend, options=RAISES), order)


RAISES = {"on_refusal": "raise"}  # a graph that ran in eager would equal eager


@pytest.mark.parametrize(
    ("f", "backend"),
    [(exponential, "aotviz_eager"), (mixed, "aotviz_eager"), (mixed, "aotviz")],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_what_flows_through_saved_tensors_is_in_every_derivative(f, backend):
    expected, found = both(f, 3, backend)
    torch.testing.assert_close(found, expected)


def test_a_function_inside_a_branch_is_differentiated_as_in_eager():
    try:
        expected, found = both(inside_a_branch, 1, "aotviz_eager")
    except torch._dynamo.exc.Unsupported:
        pytest.skip("this torch does not capture a custom Function inside cond")
    torch.testing.assert_close(found, expected)


def test_a_gradient_that_is_differentiable_once_has_eagers_further_derivatives():
    expected, found = both(once, 2, "aotviz_eager")
    torch.testing.assert_close(found, expected)


def test_the_graph_that_dynamo_made_is_left_as_it_was():
    torch._dynamo.reset()
    seen = []

    def backend(module, inputs):
        before = module.code
        from aotviz.frontends.dynamo_graphs import connected

        changed = connected(module)
        assert changed is not module
        assert module.code == before
        assert connected(changed) is changed, "nothing is left to connect"
        seen.append(changed)
        return changed

    torch.compile(exponential, backend=backend)(torch.ones(3, requires_grad=True))
    assert len(seen) == 1


RETURNED = {
    "an input": lambda x: Reverse.apply(x),
    "an input, beside it": lambda x: (Reverse.apply(x), x),
    "a view of an input": lambda x: (Reverse.apply(x[1:]), x.sin()),
    "an intermediate": lambda x: Reverse.apply(x.sin()),
    "an intermediate, beside it": lambda x: (lambda y: (Reverse.apply(y), y))(x.sin()),
    "a view of the result": lambda x: Reverse.apply(x).view(2, 2),
}


@pytest.mark.parametrize("f", RETURNED.values(), ids=RETURNED)
def test_what_a_forward_returns_as_it_is_keeps_the_functions_backward(f):
    torch._dynamo.reset()
    found = []
    for fn in (f, torch.compile(f, backend="aotviz_eager", options=RAISES)):
        x = torch.linspace(0.1, 1, 4, requires_grad=True)
        outputs = fn(x)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        sum(output.sum() * (1 + i) for i, output in enumerate(outputs)).backward()
        found.append((*outputs, x.grad, [output._base is not None for output in outputs]))
    torch.testing.assert_close(found[1][:-1], found[0][:-1])
    assert found[1][-1] == found[0][-1]


class TellsNoneApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, of_first, of_second):
        return None if of_first is None else of_first * 2, of_second if of_second is None else of_second * 3


def test_a_function_that_dynamo_gives_zeros_where_eager_gives_none_is_warned_of():
    compiled = torch.compile(lambda x, y: TellsNoneApart.apply(x, y)[0], backend="aotviz_eager", options=RAISES)
    with pytest.warns(UserWarning, match=r"TellsNoneApart calls ctx.set_materialize_grads\(False\)"):
        compiled(torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True))


def test_a_module_with_a_full_backward_hook_is_called_with_several_sizes():
    module = torch.nn.Linear(3, 3)
    module.register_full_backward_hook(lambda module, given, came: tuple(g * 3 for g in given))
    compiled = aotviz.compile(lambda x: module(x) * 2, backend="eager")
    view = aotviz.compile(module, backend="eager")
    for size in (4, 5, 6):
        gradients = []
        for fn in (lambda x: module(x) * 2, compiled, lambda x: view(x) * 2):
            x = torch.ones(size, 3, requires_grad=True)
            fn(x).sum().backward()
            gradients.append(x.grad)
        assert torch.equal(gradients[1], gradients[0])
        assert torch.equal(gradients[2], gradients[0])


class KeepsByName(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.x, ctx.more = x, [y]
        return y.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.x.cos() * ctx.more[0]


class KeepsAnAlias(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.x.cos()


class KeepsItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.sin()
        return ctx.y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.y


class KeepsAProduct(torch.autograd.Function):
    """Its backward computes what a partitioner would rather save, and what the forward computes too."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x @ x

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ (ctx.x @ ctx.x).exp()


KEEPING = {
    "an input": (lambda x, w: KeepsByName.apply(x) * 2, "x"),
    "a view of an input": (lambda x, w: KeepsByName.apply(x[1:]) * 2, "x"),
    "an alias of an input": (lambda x, w: KeepsAnAlias.apply(x) * 2, "x"),
    "an intermediate that is returned": (lambda x, w: (lambda y: (KeepsByName.apply(y), y))(x * w), 1),
    "its result": (lambda x, w: (lambda y: (y * 2, y))(KeepsItsResult.apply(x * w)), 1),
    "what another node saves": (lambda x, w: KeepsAnAlias.apply(x) * x, "x"),
    "a product": (lambda x, w: KeepsAProduct.apply(x) * w, "x"),
}
KEEPING_DOORS = {
    "aot_function": lambda f: aotviz.aot_function(f, run_graph),
    "min-cut": lambda f: aotviz.aot_function(f, run_graph, partition_fn="min_cut_rematerialization_partition"),
    "aotviz_eager": lambda f: torch.compile(f, backend="aotviz_eager", options=RAISES),
}


def written_after_the_call(f, which):
    found = []
    for write in (False, True):
        x = torch.linspace(0.1, 1, 9).view(3, 3).requires_grad_()
        w = torch.linspace(1, 2, 9).view(3, 3).requires_grad_()
        results = f(x, w)
        results = results if isinstance(results, tuple) else (results,)
        if write:
            with torch.no_grad():
                (x if which == "x" else results[which]).add_(1)
        results[0].sum().backward()
        found += [x.grad, w.grad]
    return found


@pytest.mark.parametrize("door", KEEPING_DOORS)
@pytest.mark.parametrize("name", KEEPING)
def test_a_tensor_kept_by_name_is_read_as_it_is_when_the_backward_runs(name, door):
    """Or the backward is refused: where it would read what was computed before the write."""
    torch._dynamo.reset()
    f, which = KEEPING[name]
    found, refused = [], ""
    try:
        found = written_after_the_call(KEEPING_DOORS[door](f), which)
    except aotviz.Refused as error:
        refused = error.reason
    if refused:
        assert refused == "written before the backward"
        assert name == "what another node saves" or door != "aot_function"
    elif name == "what another node saves":
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            written_after_the_call(f, which)
    else:
        torch.testing.assert_close(found, written_after_the_call(f, which))


@pytest.mark.parametrize("name", ["an input", "a view of an input", "an alias of an input", "its result"])
def test_a_tensor_kept_by_name_may_be_written_with_the_default_partitioner(name):
    f, which = KEEPING[name]
    found = written_after_the_call(KEEPING_DOORS["aot_function"](f), which)
    torch.testing.assert_close(found, written_after_the_call(f, which))


@pytest.mark.parametrize("late", [False, True])
def test_an_input_that_the_call_writes_and_a_function_keeps_is_read_with_all_writes(late):
    def f(x, running):
        with torch.no_grad():
            running.mul_(2)
        return KeepsTwo.apply(x, running)

    gradients = []
    for fn in (f, KEEPING_DOORS["aot_function"](f)):
        x, running = torch.ones(2, requires_grad=True), torch.ones(2)
        result = fn(x, running)
        if late:
            running.add_(1)
        result.sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


class KeepsTwo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, running):
        ctx.both = (x, running)
        return x * running

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.both[1], None


def detached(ctx, x):
    return x.exp().detach()


def beside_what_it_shares_memory_with(ctx, x):
    out = x.exp()
    return out.detach(), out


def detached_twice(ctx, x):
    out = x.exp()
    return out.detach(), out.detach()


def detached_view(ctx, x):
    out = x.exp()
    return out.view(-1).detach(), out


def data(ctx, x):
    out = x.exp()
    return out, out.data


def the_argument(ctx, x):
    return x.detach(), x * 2


@pytest.mark.parametrize("door", ["aot_function", "torch.compile"])
@pytest.mark.parametrize(
    "forward", [detached, beside_what_it_shares_memory_with, detached_twice, detached_view, data, the_argument]
)
@pytest.mark.parametrize("of", [lambda x: x, torch.sin], ids=["an argument", "a result"])
def test_a_detached_alias_that_a_function_returns_has_the_function_s_gradient(forward, of, door):
    class Given(torch.autograd.Function):
        @staticmethod
        def backward(ctx, *gradients):
            return sum(gradient * (k + 2) for k, gradient in enumerate(gradients))

    Given.forward = staticmethod(forward)

    def fn(x):
        out = Given.apply(of(x))
        return out if isinstance(out, tuple) else (out,)

    torch._dynamo.reset()
    given = torch.randn(3)

    def observed(fn):
        x = given.clone().requires_grad_()
        out = fn(x)
        sum((one * (k + 5)).sum() for k, one in enumerate(out)).backward()
        storages = [one.untyped_storage().data_ptr() for one in (x, *out)]
        facts = [(one._version, one._is_view(), one.is_leaf) for one in out]
        return x.grad, [one.detach().clone() for one in out], [storages.index(one) for one in storages], facts

    compiled = (
        aotviz.aot_function(fn, run_graph)
        if door == "aot_function"
        else torch.compile(fn, backend="aotviz_eager", fullgraph=True)
    )
    torch.testing.assert_close(observed(compiled), observed(fn), rtol=0, atol=0)


class Same(torch.autograd.Function):
    """Returns what it computes, and the same as a view that changes nothing."""

    @staticmethod
    def forward(ctx, x, marked):
        y = x.sin()
        if marked:
            ctx.mark_non_differentiable(y)
        return y, y.view(x.shape)

    @staticmethod
    def backward(ctx, first, second):
        first = 0 if first is None else first * 2
        return first + second * 3, None


class Itself(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(x.shape)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_results_that_inductor_makes_one_tensor_have_gradients_of_their_own():
    """It removes views that change nothing; torch's AOTAutograd then gives both results the gradient of one."""

    def fn(x):
        y = x.sin()
        return y, Itself.apply(y), *Same.apply(x * 2, False), *Same.apply(x * 3, True), Same.apply(x * 4, True)[1]

    def gradients(fn):
        x = torch.ones(2, 3, requires_grad=True)
        results = fn(x)
        return [
            torch.autograd.grad(one.sum(), x, retain_graph=True)[0] if one.requires_grad else None for one in results
        ]

    torch.testing.assert_close(gradients(torch.compile(fn, backend="aotviz")), gradients(fn))


class Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def written_before(x):
    x.mul_(0.5)
    return Viewed.apply(x)


def written_unseen(x):
    with torch.no_grad():
        x.mul_(0.5)
    return Viewed.apply(x)


def another_view_is_written(x, y):
    y.mul_(0.5)
    return Viewed.apply(x)


@pytest.mark.parametrize("function", [written_before, written_unseen, another_view_is_written])
@pytest.mark.parametrize("door", ["aot_function", "torch.compile"])
def test_a_view_that_a_function_returns_shares_memory_with_an_input_that_is_written(function, door):
    """A graph returns what is written, and not the memory to which the input is written."""

    def ran(fn):
        leaf = torch.linspace(-1.0, 1.0, 4).requires_grad_()
        whole = leaf * 1.5
        result = fn(*[whole.view(4) for _ in range(function.__code__.co_argcount)])
        result.sum().backward()
        with torch.no_grad():
            whole.detach().add_(1)
        return result.tolist(), leaf.grad.tolist()

    ours = (
        torch.compile(function, backend="aotviz_eager")
        if door == "torch.compile"
        else aotviz.aot_function(function, run_graph)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", aotviz.RanInEager)
        assert ran(ours) == ran(function)


def a_view_of_it(x):
    viewed = Viewed.apply(x)
    return viewed[::2], viewed


def it_and_a_view_of_it(x):
    viewed = Viewed.apply(x)
    return viewed, viewed, viewed.view(2, 2)


@pytest.mark.parametrize("function", [a_view_of_it, it_and_a_view_of_it])
@pytest.mark.parametrize("door", ["aot_function", "torch.compile"])
def test_a_view_that_a_function_returns_may_be_returned_with_views_of_it(function, door):
    def ran(fn):
        leaf = torch.linspace(-1.0, 1.0, 4).requires_grad_()
        whole = leaf * 1.5
        results = fn(whole)
        (gradient,) = torch.autograd.grad(sum((one * one).sum() for one in results), leaf)
        with torch.no_grad():
            whole.detach().add_(1)
        return [one.tolist() for one in results], [one._base is not None for one in results], gradient.tolist()

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aotviz_eager")
    assert ran(compiled if door == "torch.compile" else aotviz.aot_function(function, run_graph)) == ran(function)
