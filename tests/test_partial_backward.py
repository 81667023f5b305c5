"""Backwards to which not all gradients come in, several of them one after the other, and gradients that are written."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.fx as fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

import aotviz
from aotviz import pipeline
from aotviz.ir import absent, graphs
from aotviz.ir.forms import BackwardRequest
from aotviz.lowerings import run_graph
from aotviz.pipeline import Observer
from aotviz.torch_private.runtime import HAS_BOXED_GRADIENTS
from tests.doors import alone
from tests.tiers import slow

torch.set_num_threads(1)


def leaves(*values):
    return [torch.tensor(value).requires_grad_() for value in values]


def gradients(fn, inputs, *backwards):
    """The inputs' gradients after going back from each output in turn; the text of an error if there is one."""
    outs = fn(*inputs)
    try:
        for out in backwards:
            outs[out].sum().backward()
    except RuntimeError as error:
        return str(error)
    return [None if x.grad is None else x.grad.tolist() for x in inputs]


@pytest.fixture(params=["eager", slow("inductor"), "dynamic", "nothing donated"])
def compiled(request):
    options = {
        "eager": {"backend": "eager", "debug": True},
        "inductor": {},
        "dynamic": {"backend": "eager", "dynamic": True},
        "nothing donated": {"backend": "eager", "donate_buffers": False},
    }[request.param]
    return lambda fn: aotviz.compile(fn, **options)


def assert_eagers(compiled, fn, values, *backwards):
    mine, eagers = (gradients(f, leaves(*values), *backwards) for f in (compiled(fn), fn))
    if isinstance(eagers, str):
        assert mine == eagers
    else:
        torch.testing.assert_close(*([x if x is None else torch.tensor(x) for x in g] for g in (mine, eagers)))
    return mine


def apart(x, w):
    return (x * 2).sin(), (w * 3).cos(), x.exp() * w


def shared(x, w):
    h = x.sin()
    return h * 2, h * w


VALUES = ([0.5, 1.0], [2.0, 3.0])


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 2), (2, 1, 0)])
def test_outputs_that_share_nothing_can_be_gone_back_from_one_after_the_other(compiled, order):
    assert isinstance(assert_eagers(compiled, apart, VALUES, *order), list)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_outputs_that_share_what_was_saved_are_refused_the_second_time_as_in_eager(order):
    eager = lambda fn: aotviz.compile(fn, backend="eager")  # noqa: E731
    assert "backward through the graph a second time" in assert_eagers(eager, shared, VALUES, *order)


@pytest.mark.every(4)
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 2), (2, 0), (1, 1)])
@pytest.mark.parametrize("fn", [apart, shared, lambda x, w: (x.exp() * w, (x * 2).sin(), x * x)])
def test_a_gradient_is_differentiated_after_one_of_another_output_as_in_eager(compiled, fn, order):
    def differentiated(call):
        x, w = leaves(*VALUES)
        outs = call(x, w)
        first, second = (outs[i % len(outs)].sum() for i in order)
        try:
            first.backward()
            found = torch.autograd.grad(second, (x, w), create_graph=True, allow_unused=True)
            sum(one.sum() for one in found if one is not None).backward()
        except RuntimeError as error:
            return str(error)
        return x.grad.tolist() + ([] if w.grad is None else w.grad.tolist())

    expected, found = differentiated(fn), differentiated(compiled(fn))
    assert isinstance(found, str) is isinstance(expected, str), found
    if isinstance(expected, list):
        torch.testing.assert_close(torch.tensor(found), torch.tensor(expected))


def test_the_same_output_twice_is_refused_as_in_eager(compiled):
    assert "backward through the graph a second time" in assert_eagers(compiled, apart, VALUES, 1, 1)


@pytest.mark.parametrize("fn", [lambda x, w: (x / 0, x * w), lambda x, w: ((x * w).log(), x * w, x.sqrt() + x * w)])
def test_what_no_gradient_comes_in_for_does_not_turn_zeros_into_nan(compiled, fn):
    found = assert_eagers(compiled, fn, ([0.0, 0.0], [2.0, 3.0]), 1)
    assert "nan" not in str(found)


def test_inputs_of_other_outputs_have_no_gradient(compiled):
    assert assert_eagers(compiled, apart, VALUES, 1)[0] is None


def test_what_is_held_for_another_output_is_watched():
    x, w = leaves(*VALUES)
    kept = w * 1
    fn = aotviz.compile(lambda x, w: (x.sin(), w.cos()), backend="eager")
    first, second = fn(x, kept)
    first.sum().backward()
    with torch.no_grad():
        kept.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        second.sum().backward()


def test_each_pattern_of_gradients_is_compiled_once():
    fn = aotviz.compile(apart, backend="eager")
    for _ in range(2):
        gradients(fn, leaves(*VALUES), 1)
        gradients(fn, leaves(*VALUES), 2)
    parts = fn.program.lowered.partial._parts
    assert sum(part.compiled is not None for part in parts.values()) == 2


def test_a_pattern_that_was_seen_walks_no_graph(monkeypatch):
    fn = aotviz.compile(lambda x, w: (h := (x * w).sin(), h * w), backend="eager")
    first = [gradients(fn, leaves(*VALUES), k) for k in (0, 1)]

    def walked(*args):
        raise AssertionError("the graph was walked again")

    for name in ("dependencies", "placeholders", "outputs", "copy"):
        monkeypatch.setattr(graphs, name, walked)
    assert [gradients(fn, leaves(*VALUES), k) for k in (0, 1)] == first


class Products(TorchDispatchMode):
    """Notes at each product whether what `watched` refers to is alive."""

    def __init__(self):
        super().__init__()
        self.watched, self.alive = lambda: None, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.mul.Tensor:
            self.alive.append(self.watched() is not None)
        return func(*args, **kwargs or {})


def test_a_graph_frees_an_argument_after_its_last_use():
    module = torch.fx.experimental.proxy_tensor.make_fx(lambda s, a, b: s * a * b * 2)(
        *(args := [torch.ones(2) for _ in range(3)])
    )
    run, products = run_graph(module, []), Products()
    products.watched = weakref.ref(args[0])
    with products:
        run(args)
    assert products.alive == [True, False, False]
    assert args == []


def of_an_exponential(results):
    """One result or two; the backward of the first multiplies by 3, by the exponential and by 2."""

    def f(x):
        h = (x * 2).exp()
        return (h * 3, h.sum())[:results]

    return aotviz.compile(f, backend="eager", record=False)


@pytest.mark.skipif(not HAS_BOXED_GRADIENTS, reason="in this release of torch, the engine keeps the gradients")
@pytest.mark.parametrize("results", [1, 2])
def test_a_gradient_is_freed_after_its_last_use_also_where_another_did_not_come_in(results):
    fn = of_an_exponential(results)
    for _ in range(2):
        out, products = fn(torch.ones(2, requires_grad=True))[0], Products()
        out.register_hook(lambda gradient, seen=products: setattr(seen, "watched", weakref.ref(gradient)))
        loss = (out + 1).exp().sum()  # so that nothing else holds the gradient
        with products:
            loss.backward()
        assert products.alive[-3:] == [True, False, False], "by 3, by the exponential, by 2"


@pytest.mark.parametrize("results", [1, 2])
def test_a_saved_value_is_freed_after_its_last_use_also_where_a_gradient_did_not_come_in(results):
    fn = of_an_exponential(results)
    for _ in range(2):
        out, products = fn(torch.ones(2, requires_grad=True))[0], Products()
        (exponential,) = (StorageWeakRef(saved.untyped_storage()) for saved in out.grad_fn.saved_tensors)
        products.watched = lambda kept=exponential: None if kept.expired() else kept
        with products:
            out.sum().backward()
        assert products.alive[-3:] == [True, True, False], "by 3, by the exponential, by 2"


def test_retain_graph_keeps_all(compiled):
    fn = compiled(shared)
    x, w = leaves(*VALUES)
    outs = fn(x, w)
    for _ in range(2):
        outs[0].sum().backward(retain_graph=True)
        outs[1].sum().backward(retain_graph=True)
    expected = leaves(*VALUES)
    outs = shared(*expected)
    for out in (*outs, *outs):
        out.sum().backward(retain_graph=True)
    torch.testing.assert_close([x.grad, w.grad], [e.grad for e in expected])


def test_more_patterns_than_are_compiled_are_run_as_they_are(monkeypatch):
    monkeypatch.setattr("aotviz.runtime.partial_backward.MANY_PATTERNS", 1)
    eager = lambda fn: aotviz.compile(fn, backend="eager")  # noqa: E731
    fn = eager(apart)
    for k in range(3):
        assert gradients(fn, leaves(*VALUES), k) == gradients(apart, leaves(*VALUES), k)


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        gradient.mul_(3)
        return gradient * 2


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("strides", [(2, 1), (1, 2)])
def test_a_gradient_that_a_custom_backward_writes_is_written_as_in_eager(backend, strides):
    seen = []
    for fn in (Tripled.apply, aotviz.compile(lambda x: Tripled.apply(x), backend=backend)):
        x = torch.ones(2, 2, requires_grad=True)
        gradient = torch.ones(2, 2).as_strided((2, 2), strides)
        fn(x).backward(gradient)
        seen.append((x.grad, gradient, gradient._version if backend == "eager" else 0))
    torch.testing.assert_close(*seen)
    assert seen[0][1].sum() == 12


def test_a_sparse_gradient_is_refused_with_what_to_do():
    out = aotviz.compile(lambda x: x * 2, backend="eager")(torch.ones(3, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"layout torch.sparse_coo.*to_dense"):
        out.backward(torch.ones(3).to_sparse())


def graph_of(fn):
    inputs = [torch.ones(2) for _ in range(3)]
    module = torch.fx.experimental.proxy_tensor.make_fx(fn, tracing_mode="fake")(*inputs)
    for number, node in enumerate(list(module.graph.find_nodes(op="placeholder"))):
        node._rename(f"tangents_{number}" if number else "saved")
    return fx.GraphModule(module, module.graph)


def test_a_sum_with_an_absent_gradient_is_the_other_term_and_other_operators_get_zeros():
    module = graph_of(lambda s, a, b: (a * s + b.exp(), torch.cat([a, b.exp()]), b.exp()))
    made = absent.without(module, {"tangents_2"})
    assert [node.name for node in made.graph.find_nodes(op="placeholder")] == ["saved", "tangents_1"]
    total, joined, alone = made(torch.full((2,), 5.0), torch.ones(2))
    assert total.tolist() == [5, 5]
    assert joined.tolist() == [1, 1, 0, 0]
    assert alone is None
    assert "exp" not in str(made.graph)
    assert "exp" in str(module.graph)


def predicts_and_has_a_loss(x, weight, target):
    predicted = (x @ weight).transpose(1, 2) * 2.0
    return predicted, (predicted * target).sum()


@pytest.mark.every(3)
@pytest.mark.parametrize(("door", "sizes"), [("aot_function", [4]), ("aotviz_eager", [4, 3]), ("aotviz", [4, 3])])
def test_the_only_gradient_that_comes_in_is_laid_out_as_the_sum_that_it_stands_for(door, sizes):
    torch._dynamo.reset()
    weight = torch.randn(3, 3, requires_grad=True)
    fn = predicts_and_has_a_loss
    compiled = aotviz.aot_function(fn, run_graph) if door == "aot_function" else torch.compile(fn, backend=door)
    for size in sizes:
        x, target = torch.randn(size, 5, 3), torch.randn(size, 3, 5)
        found, expected = (torch.autograd.grad(f(x, weight, target)[1], weight)[0] for f in (compiled, fn))
        torch.testing.assert_close(found, expected)


def test_zeros_for_an_absent_gradient_are_laid_out_as_it_would_be():
    module = graph_of(lambda s, a, b: (torch.maximum(b.outer(s).t(), a.outer(s)).t().reshape(4),))
    (largest,) = absent.without(module, {"tangents_2"})(torch.ones(2), torch.tensor([1.0, 2.0]))
    assert largest.tolist() == [1, 2, 1, 2]


def test_gradients_share_what_was_saved_if_one_node_on_the_way_of_both_reads_it():
    one, two = "tangents_1", "tangents_2"
    shared = absent.sharing(graph_of(lambda s, a, b: ((a + b) * s,)))
    assert shared == {one: {one, two}, two: {one, two}}
    assert absent.sharing(graph_of(lambda s, a, b: (a * s + b * s,))) == {one: {one}, two: {two}}
    assert absent.sharing(graph_of(lambda s, a, b: (a + b * s,))) == {one: set(), two: {two}}


def test_a_backward_for_some_gradients_is_a_stage_of_its_own_in_the_recording():
    seen = []

    class Watching(Observer):
        def before(self, stage, argument):
            if isinstance(argument, BackwardRequest):
                seen.append((stage, argument.reason))

    stopped = aotviz.trace_stages(apart, *leaves(*VALUES), until="donated buffers", backend="eager")
    outs = pipeline.run(stopped.remaining, stopped.form, Watching()).function(*leaves(*VALUES))
    outs[1].sum().backward()
    why = "the backward was first called with the gradients of output[1] only"
    assert seen == [("lower backward", why)]


def test_what_no_other_gradient_reads_is_donated_unless_the_graph_is_kept():
    def fn(x, w):
        return x.sin().exp().sum(), w.sin().exp().sum()

    seen = []

    class Watching(Observer):
        def before(self, stage, argument):
            if isinstance(argument, BackwardRequest):
                seen.append(argument.donated)

    stopped = aotviz.trace_stages(fn, *leaves(*VALUES), until="donated buffers", backend="eager")
    program = pipeline.run(stopped.remaining, stopped.form, Watching()).function
    for keep in (False, True):
        program(*leaves(*VALUES))[0].backward(retain_graph=keep)
    assert [len(donated) for donated in seen] == [1, 0]


def of_two_results(materializes):
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(materializes)
            ctx.save_for_backward(x, y)
            return x * 2, y * 3

        @staticmethod
        def backward(ctx, of_first, of_second):
            x, y = ctx.saved_tensors
            first = None if of_first is None else of_first * x
            return first, y * 7 if of_second is None else of_second * 3 + y

    return Two


@pytest.mark.parametrize("materializes", [True, False])
@pytest.mark.parametrize("result", [0, 1])
def test_a_custom_function_is_told_which_of_its_results_got_no_gradient(materializes, result):
    two = of_two_results(materializes)

    def f(x, y):
        one, other = two.apply(x, y)
        return one.sin(), other.cos()

    found = []
    for call in (f, alone(f, record=False)):
        for _ in range(2):
            x, y = torch.ones(3, requires_grad=True), torch.full((3,), 0.5, requires_grad=True)
            call(x, y)[result].sum().backward()
            found.append([None if t.grad is None else t.grad.tolist() for t in (x, y)])
    assert found == [found[0]] * 4


def test_the_gradient_of_a_leaf_that_is_moved_after_it_was_only_detached_has_no_other_shape():
    def fn(x):
        with torch.no_grad():
            x.mul_(2)
        detached = x.detach() * 3
        with torch.no_grad():
            x.unsqueeze_(0)
        return torch.where(x > 0, x, detached)

    x = torch.rand(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="whose shape the function changes in place before it uses it"):
        torch.autograd.grad(aotviz.aot_function(fn, run_graph)(x).sum(), x)


@pytest.mark.parametrize("compiled", [alone, lambda fn: aotviz.compile(fn, backend="eager")])
def test_a_hook_on_the_base_of_a_written_view_is_not_called_with_none(compiled):
    """The write gives the base another grad_fn; the hook stays with the one that it had."""

    def f(x, scale, view):
        view.mul_(scale.sum())
        return x.relu()

    def ran(call):
        x, base = torch.linspace(-1, 1, 6).requires_grad_(), torch.ones(4, requires_grad=True) * 1.5
        heard = []
        base.register_hook(lambda gradient: heard.append(gradient * 2))
        call(x[3:], x[:3], base[:2]).sum().backward()
        return heard, x.grad.tolist()

    assert ran(compiled(f)) == ran(f)


@pytest.mark.parametrize("compiled", [alone, lambda fn: aotviz.compile(fn, backend="eager")])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_hook_on_an_input_beside_a_subclass_is_not_called_with_none(compiled, create_graph):
    def f(pair, x):
        return pair * 2, x.sin()

    def ran(call, result):
        pair = TwoTensor(torch.linspace(-1, 1, 4), torch.linspace(1, 2, 4)).requires_grad_()
        x, heard = torch.linspace(-1, 1, 4).requires_grad_(), []
        for leaf in (pair, x):
            leaf.register_hook(lambda gradient: heard.append(gradient * 2))
        call(pair, x)[result].sum().backward(create_graph=create_graph)
        return len(heard), x.grad is None, pair.grad is None

    for result in (0, 1):
        assert ran(compiled(f), result) == ran(f, result)


class MatmulAndMaximum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        product, maximum = x @ w, x.amax(1)
        ctx.save_for_backward(x, w, product)
        return product, maximum

    @staticmethod
    def backward(ctx, of_product, of_maximum):
        x, w, product = ctx.saved_tensors
        return of_product @ w.T + of_maximum[:, None] / 4, x.T @ (of_product * product.sign())


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_some_results_of_a_custom_function_that_saves_one_of_them(used, clean_dynamo):
    def fn(x, w):
        product, maximum = MatmulAndMaximum.apply(x, w)
        return product * 2, maximum + 1

    def gradients(call):
        torch.manual_seed(0)
        x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True)
        results = call(x, w)
        sum(results[i].sum() for i in used).backward()
        return x.grad, w.grad

    torch.testing.assert_close(gradients(torch.compile(fn, backend="aotviz_eager")), gradients(fn))
