"""Torch's compiled autograd around backwards of compiled calls: eager's gradients, in one graph where that can be."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch
from torch import nn
from torch._dynamo import compiled_autograd

import aotviz
import aotviz.frontends.backend
from aotviz.ir.refusals import Refused
from tests.tiers import slow

pytestmark = pytest.mark.usefixtures("clean_dynamo")


def ours(function):
    return torch.compile(function, backend="aotviz_eager")


def in_eager(function):
    return function


class Captured:
    """`with captured():` as a user turns compiled autograd on; counts what it captures."""

    def __init__(self, fullgraph=True, backend="eager"):
        self.graphs = []
        self.options = {"fullgraph": fullgraph, "backend": backend}

    def __call__(self):
        return compiled_autograd._enable(self.compile)

    def compile(self, graph):
        self.graphs.append(graph)
        return torch.compile(graph, **self.options)


def compared(program, fullgraph=True, backend="eager"):
    """`program(compile, capture)` in eager and with both on, compared; returns what was captured."""
    torch.manual_seed(0)
    expected = program(in_eager, contextlib.nullcontext)
    captured = Captured(fullgraph, backend)
    torch.manual_seed(0)
    found = program(ours, captured)
    assert captured.graphs
    assert [one is None for one in found] == [one is None for one in expected]
    for one, other in zip(found, expected, strict=True):
        if other is not None:
            torch.testing.assert_close(one, other)
    return captured


def ones(count=3):
    return torch.ones(count, requires_grad=True)


def train(compiled, capture):
    """Batches of several sizes, gradients that are added up, two optimizer steps."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
    forward = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for rows in (3, 3, 4, 5, 6, 6):
        x = torch.randn(rows, 4, requires_grad=True)
        loss = forward(x).square().mean()
        with capture():
            loss.backward()
        seen += [x.grad, *(p.grad.clone() for p in model.parameters())]
        if rows % 2 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=rows == 4)
    return seen


@pytest.mark.parametrize("backend", ["eager", slow("aot_eager"), "aotviz_eager", slow("aotviz")])
def test_a_model_trains_with_few_captures(backend):
    assert len(compared(train, backend=backend).graphs) <= 6


def unused_result(compiled, capture):
    w, v = ones(), ones()
    w.register_hook(lambda gradient: gradient * 3)
    v.register_hook(lambda gradient: gradient * 5)  # never called
    loss, _hidden, _other = compiled(lambda w, v: ((h := (w * 2).sin()).sum() * 3, h, (v * w).exp()))(w, v)
    with capture():
        loss.backward()
    return [w.grad, v.grad]


def missing_gradient_beside_another(compiled, capture):
    w, v = ones(), ones()
    s = v.exp()
    first, _ = compiled(lambda w, s: ((w * 2).sin(), (s * w).sqrt()))(w, s)
    with capture():
        (first.sum() + (s * 3).sum()).backward()
    return [w.grad, v.grad]


def kept_graph(compiled, capture):
    w = ones()
    y = compiled(lambda w: (w * 2).sin())(w).sum()
    with capture():
        y.backward(retain_graph=True)
        y.backward()
    return [w.grad]


def asked_for(compiled, capture):
    w, v = ones(), ones()
    a, b = compiled(lambda w, v: ((w * 2).sin(), (v * w).exp()))(w, v)
    with capture():
        first = torch.autograd.grad(a.sum(), [w, v], allow_unused=True, retain_graph=True)
        return [*first, *torch.autograd.grad(b.sum(), [w, v])]


def hook_on_a_result(compiled, capture):
    w = ones()
    h, loss = compiled(lambda w: (w.cos(), (w * w).sum()))(w)
    h.register_hook(lambda gradient: gradient * 2)
    with capture():
        (loss + h.sum()).backward()
    return [w.grad]


def saved_through_hooks(compiled, capture):
    w = ones()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t * 1):
        y = compiled(lambda w: (w * 2).sin().exp())(w).sum()
    with capture():
        y.backward()
    return [w.grad]


def written_input_and_view(compiled, capture):
    w, b = ones(), torch.zeros(3)

    def f(w, b):
        b.add_(w.detach() * 2)
        return (w * b).sin(), w.view(-1)

    y, view = compiled(f)(w, b)
    with capture():
        (y.sum() + view.sum() * 2).backward()
    return [w.grad, b]


def one_call_after_another(compiled, capture):
    w = ones()
    x = w * 2
    f = compiled(lambda x: ((x * 2).sin(), x[:2]))
    y, view = f(x)
    z, _ = f(y)
    with capture():
        (z.sum() + compiled(lambda a, b: a[:2] * b)(z, view).sum()).backward()
    return [w.grad]


def sizes_that_vary(compiled, capture):
    def f(x, w):
        h = (x @ w).relu()
        return torch.cat([h, h * x.shape[0]]), h.transpose(0, 1)

    forward, w, seen = compiled(f), torch.ones(3, 2, requires_grad=True), []
    for rows in (2, 3, 4, 5, 5):
        x = torch.arange(rows * 3.0).view(rows, 3).requires_grad_()
        a, b = forward(x, w)
        with capture():
            (a.sum() if rows % 2 else b.sum() * 2 + a.sum()).backward()
        seen += [x.grad, w.grad.clone()]
    return seen


def dropout(compiled, capture):
    w = ones(30)
    y = compiled(lambda w: nn.functional.dropout(w * 2, 0.5) + w * 0)(w)
    with capture():
        y.sum().backward()
    return [((y != 0) == (w.grad != 0)).all()]


IN_ONE_GRAPH = [
    unused_result,
    missing_gradient_beside_another,
    kept_graph,
    asked_for,
    hook_on_a_result,
    saved_through_hooks,
    written_input_and_view,
    one_call_after_another,
    sizes_that_vary,
    dropout,
]


@pytest.mark.parametrize("program", IN_ONE_GRAPH, ids=lambda program: program.__name__)
def test_a_backward_goes_into_one_graph(program):
    compared(program)


class Triples(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient.mul_(3)


def written_gradient(compiled, capture):
    w, gradient = ones(), torch.ones(3)
    y = compiled(lambda w: Triples.apply(w * 1.5))(w)
    with capture():
        y.backward(gradient)
    return [w.grad, gradient]


def second_derivative(compiled, capture):
    w, seen = ones(), []
    forward = compiled(lambda w: (w * 2).sin())
    for create_graph in (False, True, False, True):
        y = forward(w).sum()
        with capture():
            (gradient,) = torch.autograd.grad(y, w, create_graph=create_graph)
        seen.append(gradient.detach())
        if create_graph:
            seen += torch.autograd.grad(gradient.square().sum(), w)
    return seen


def retained_gradient(compiled, capture):  # a call of C++, which breaks the graph with torch's own backend too
    w = ones()
    h = compiled(lambda w: (w * 2).sin())(w)
    h.retain_grad()
    with capture():
        (h * h).sum().backward()
    return [w.grad, h.grad]


@pytest.mark.parametrize("program", [written_gradient, second_derivative, retained_gradient], ids=lambda p: p.__name__)
def test_what_no_graph_can_hold_runs_between_two(program):
    compared(program, fullgraph=False)


def test_dynamo_is_told_why_a_backward_is_not_in_the_graph():
    with pytest.raises(torch._dynamo.exc.Unsupported, match="it writes to an incoming gradient"):
        written_gradient(ours, Captured())


def test_a_backward_of_tensors_made_of_tensors_runs_between_two_graphs():
    from torch.testing._internal.two_tensor import TwoTensor

    def program(compiled, capture):
        w = nn.Parameter(TwoTensor(torch.ones(3), torch.full((3,), 2.0)))
        y = compiled(lambda w: (w * 2).sin())(w).sum()
        with capture():
            y.backward()
        return [w.grad.a, w.grad.b]

    compared(program, fullgraph=False)


def test_a_hook_that_would_hear_a_part_of_its_gradient_is_refused():
    w = ones()
    h, loss = ours(lambda w: ((h := (w * 2).sin()), (h * h).sum()))(w)
    h.register_hook(lambda gradient: gradient * 2)
    with pytest.raises(Refused, match="one node"), Captured()():
        loss.backward(retain_graph=True)
    other, its_loss = ours(lambda w: ((h := w.sin()), (h * h).sum()))(w)
    with pytest.raises(Refused, match=r"torch\.autograd\.grad asks for the gradient"), Captured()():
        torch.autograd.grad(its_loss + other.sum(), other)
    loss.backward()
    torch.testing.assert_close(w.grad, 8 * torch.tensor([2.0] * 3).sin() * torch.tensor([2.0] * 3).cos())


def hooked_in_the_middle(w, v):
    h = (w * v).sin()
    h.register_hook(lambda gradient: gradient * 2)
    return (h * h).sum()


def two_hooks_on_one_tensor(w, v):
    h = w.exp()
    h.register_hook(lambda gradient: gradient * 3)
    h.register_hook(lambda gradient: gradient + 1)
    return (h * v).sum()


def hooked_at_once_and_again(w, v):
    w.sin().sum()
    h = w * v
    h.register_hook(lambda gradient: gradient * 3)
    k = h.cos()
    k.register_hook(lambda gradient: gradient.neg())
    return (h * k).sum()


def hooked_before_a_write(w, v):
    h = w * v
    h.register_hook(lambda gradient: gradient * 3)
    h.mul_(v)
    h.register_hook(lambda gradient: gradient + 1)
    return (h.sin() * v).sum()


def hooked_and_returned(w, v):
    h = w.exp()
    h.register_hook(lambda gradient: gradient * 3)
    return (h * v).sum(), h


def view_hooked(w, v):
    h = w * v
    part = h[1:]
    part.register_hook(lambda gradient: gradient * 3)
    return (h.sum() + (part * v[1:]).sum()) * 2


HOOKED = [
    hooked_in_the_middle,
    two_hooks_on_one_tensor,
    hooked_at_once_and_again,
    hooked_before_a_write,
    hooked_and_returned,
    view_hooked,
]


@pytest.mark.parametrize("function", HOOKED, ids=lambda one: one.__name__)
@pytest.mark.parametrize("backend", ["aotviz_eager", slow("aotviz")])
def test_hooks_that_a_compiled_function_registers_are_called(function, backend):
    def program(compiled, capture):
        w, v = ones(), torch.arange(3.0, requires_grad=True)
        found = []
        for _ in range(2):
            with capture():
                result = compiled(function)(w, v)
                (sum(one.sum() for one in result) if isinstance(result, tuple) else result).backward()
            found += [w.grad.clone(), v.grad.clone()]
        return found

    expected = program(in_eager, contextlib.nullcontext)
    with aotviz.record() as recording:
        compiled = functools.partial(torch.compile, backend=backend, options={"on_refusal": "raise"})
        found = program(compiled, Captured(fullgraph=False, backend=backend))
    torch.testing.assert_close(found, expected)
    pieces = [one for one in recording if one.name.startswith(function.__name__)]
    assert len(pieces) > 1


def test_a_hook_of_a_compiled_function_that_changes_a_list_sees_each_backward():
    heard = []

    def function(w, scale):
        h = w.sin()
        h.register_hook(lambda gradient: heard.append(scale) or gradient * scale)
        return (h * h).sum()

    def program(compiled, capture):
        heard.clear()
        w = ones()
        for scale in (2, 3, 4):
            with capture():
                compiled(function)(w, scale).backward()
        return [w.grad, torch.tensor(heard)]

    compared(program, fullgraph=False)
    assert heard == [2, 3, 4]


@pytest.mark.parametrize("backend", ["aotviz_eager", slow("aotviz")])
def test_the_switch_in_torchs_configuration_compiles_the_backward_of_a_step(backend):
    def step(model, x):
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach()

    def gradients(run):
        torch.manual_seed(0)
        model, found = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), []
        for rows in (2, 2, 5):
            found.append(run(model, torch.randn(rows, 3)))
        return [*found, *(p.grad for p in model.parameters())]

    expected = gradients(step)
    with torch._dynamo.config.patch(compiled_autograd=True), aotviz.record() as recording:
        found = gradients(torch.compile(step, backend=backend))
    torch.testing.assert_close(found, expected)
    assert any("inputs[" in name for one in recording for name in one.inputs.name)  # of a graph of compiled autograd


def test_a_function_of_aot_function_goes_into_the_graph():
    def program(compiled, capture):
        w = ones()
        f = lambda w: (w * 2).sin()  # noqa: E731
        function = f if compiled is in_eager else aotviz.aot_function(f, lambda graph, inputs: graph)
        with capture():
            function(w).sum().backward()
        return [w.grad]

    compared(program)


def test_other_functions_are_captured_as_torch_captures_them():
    def program(compiled, capture):
        w = ones()
        y = Triples.apply(compiled(lambda w: w.sin())(w) * 1)
        with capture():
            (y * 1).sum().backward()
        return [w.grad]

    compared(program)


def test_hooks_on_parameters_run_when_their_graph_is_done_and_in_eagers_order_by_compiled_autograd():
    """What the first paragraph of docs/backward.md says."""
    layers = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(4)))
    events: list[str] = []
    for name, parameter in layers.named_parameters():
        parameter.register_hook(lambda _, name=name: events.append(name))
    x = torch.ones(2, 3, requires_grad=True)
    x.register_hook(lambda _: events.append("x"))

    def told(call, backward=lambda loss: loss.backward()):
        events.clear()
        backward(call(x).sum())
        return [*events]

    def captured(loss):
        with aotviz.compiled_autograd(backend="eager"):
            loss.backward()

    in_eager = told(layers)
    assert in_eager[0].startswith("3.")
    assert in_eager[-1] != "3.weight"
    compiled_layers = torch.compile(layers, backend="aotviz_eager")
    assert sorted(told(compiled_layers)) == sorted(in_eager)
    assert told(compiled_layers) != in_eager
    assert told(layers, captured) == in_eager
