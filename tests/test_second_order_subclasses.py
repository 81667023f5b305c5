"""Gradients of gradients of tensor subclasses: as in eager, under `create_graph=True`."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
from aotviz.runtime.edges import delayed_error

torch.set_num_threads(1)


def two(*shape, grad=False, seed=3):
    source = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(*shape, generator=source, dtype=torch.float64) for _ in range(2))
    return TwoTensor(a, b).requires_grad_(grad)


def grad(outputs, inputs, **options):
    """`torch.autograd.grad` from ones."""
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    return torch.autograd.grad(outputs, inputs, [torch.ones_like(output) for output in outputs], **options)


def parts(value):
    if isinstance(value, (list, tuple)):
        return [part for one in value for part in parts(one)]
    if type(value) is torch.Tensor or value is None:
        return [value]
    names, _ = value.__tensor_flatten__()
    return [
        value.requires_grad,
        type(value).__name__,
        *(part for name in names for part in parts(getattr(value, name))),
    ]


def orders(compiled):
    t = two(3, grad=True)
    (first,) = grad(compiled(t), t, create_graph=True)
    (second,) = grad(first.sum(), t, create_graph=True)
    return first, second, grad(second.sum(), t)


def inputs_that_are_results(compiled):
    t, w = two(3, grad=True), two(3, grad=True, seed=4)
    (first,) = grad(compiled(t * 2, w), t, create_graph=True)
    loss = (first * first).sum()
    loss.backward(torch.ones_like(loss))
    return first, t.grad, w.grad


def gradient_penalty(compiled):
    t = two(4, 3, grad=True)
    w = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(3, 2).requires_grad_()
    output = compiled(t, w)
    (first,) = grad(output, t, create_graph=True)
    loss = output + (first.pow(2).sum() - 1).pow(2)
    loss.backward(torch.ones_like(loss))
    return first, t.grad, w.grad


def hessian_vector_product(compiled):
    t, v = two(3, grad=True), two(3, seed=5)
    (first,) = grad(compiled(t), t, create_graph=True)
    return torch.autograd.grad(first, t, v)


def tangent_with_a_history(compiled):
    t, v = two(3, 2, grad=True), two(2, 3, grad=True, seed=6)
    (first,) = torch.autograd.grad(compiled(t), t, v.t(), create_graph=True)  # other strides than the output's
    first.sum().backward(torch.ones_like(first.sum()))
    return first, t.grad, v.grad


def plain_tangent_with_a_history(compiled):
    t, v = two(3, grad=True), torch.ones(3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(compiled(t), t, v * 2, create_graph=True)
    first.sum().backward(torch.ones_like(first.sum()))
    return first, t.grad, v.grad


def written_inside(compiled):
    t, u = two(3, grad=True), two(3, grad=True, seed=7)
    x = t.clone()
    output = compiled(x, u) * x
    first = grad(output, (t, u), create_graph=True)
    return first, grad(first[0] * first[1], (t, u))


def nested(compiled):
    t = TwoTensor(two(3), two(3, seed=8)).requires_grad_()
    (first,) = grad(compiled(t), t, create_graph=True)
    return first, grad(first.sum(), t)


def views_of_one_result(compiled):
    t = two(2, 3, grad=True)
    a, b = compiled(t.clone())
    (first,) = grad(a * b, t, create_graph=True)
    return first, grad(first * first, t)


def hooks_see_each_order(compiled):
    t, seen = two(3, grad=True), []
    t.register_hook(lambda gradient: seen.append(gradient * 1))
    (first,) = grad(compiled(t), t, create_graph=True)
    first.sum().backward(torch.ones_like(first.sum()))
    return seen, t.grad


def _writes(t, u):
    t.mul_(u)
    return t.exp()


CASES = {
    orders: lambda t: (t**3).sum(),
    inputs_that_are_results: lambda t, w: (t.sin() * w).exp(),
    gradient_penalty: lambda t, w: torch.tanh(t @ w).sum(),
    hessian_vector_product: lambda t: (t.sin() * t.exp()).sum(),
    tangent_with_a_history: lambda t: t.sin(),
    plain_tangent_with_a_history: lambda t: t.sin(),
    written_inside: _writes,
    nested: lambda t: (t**3).sum(),
    views_of_one_result: lambda t: (t.view(6), (t * t).view(6)),
    hooks_see_each_order: lambda t: (t**3).sum(),
}


@pytest.mark.parametrize("run", CASES, ids=lambda run: run.__name__)
def test_gradients_of_gradients_equal_eager(run):
    expected, found = parts(run(CASES[run])), parts(run(aotviz.compile(CASES[run], backend="eager")))
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(other, one)
        else:
            assert one == other


def test_symbolic_sizes_serve_all_lengths():
    compiled = aotviz.compile(lambda t: (t**3).sum(), backend="eager", dynamic=True)
    for length in (3, 5, 7):
        t = two(length, grad=True)
        (first,) = grad(compiled(t * 1), t, create_graph=True)
        (second,) = grad(first.sum(), t)
        torch.testing.assert_close(second.a, 6 * t.a)


def test_jagged_tensors():
    def run(fn):
        values = torch.arange(10, dtype=torch.float64).reshape(5, 2) / 7
        nested = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 5])).requires_grad_()
        (first,) = grad(fn(nested), nested, create_graph=True)
        (second,) = grad(first.sin(), nested)
        return first.values(), second.values()

    def fn(t):
        return (t.sin() * t).exp()

    for one, other in zip(run(fn), run(aotviz.compile(fn, backend="eager")), strict=True):
        torch.testing.assert_close(one, other)


def test_the_gradient_is_recorded_as_a_compilation_of_its_own():
    compiled = aotviz.compile(lambda t: (t**3).sum(), backend="eager", record=True)
    t = two(3, grad=True)
    (first,) = grad(compiled(t), t, create_graph=True)
    grad(first.sum(), t)
    names = [compilation.name for compilation in compiled.recording.compilations]
    assert len(names) == 2
    assert names[1].startswith("gradient of ")


def test_what_was_kept_and_is_written_is_noticed():
    t, u = two(3, grad=True), two(3, seed=4)
    output = aotviz.compile(lambda t, u: t * t * u, backend="eager")(t, u)
    u.mul_(2)
    with pytest.raises(RuntimeError, match="modified"):
        grad(output, t, create_graph=True)


def test_an_error_that_waits_for_a_second_differentiation_is_not_lost_on_a_subclass():
    t = two(3, grad=True)
    (first,) = delayed_error([t.detach()], [t * 2], RuntimeError("it can't be had"))
    assert type(first) is TwoTensor
    assert first.requires_grad
    with pytest.raises(RuntimeError, match="it can't be had"):
        grad(first.sum() + (t * t).sum(), t)


def test_a_conversion_that_loses_the_history_is_refused():
    class Converting(TwoTensor):
        def __coerce_same_metadata_as_tangent__(self, context, kind=None):
            return TwoTensor(self.a, self.b) if kind is TwoTensor else None

    t = two(3, grad=True)
    tangent = Converting(torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)).requires_grad_()
    output = aotviz.compile(lambda t: t * 3, backend="eager")(t)
    with pytest.raises(RuntimeError, match=r"has a grad_fn \(create_graph=True\)"):
        output.backward(tangent, create_graph=True)


@pytest.mark.parametrize(
    "loss", [lambda y: y.sum(), lambda y: (y.values() ** 2).sum()], ids=["of the whole", "of values"]
)
def test_the_gradient_of_a_jagged_gradient_has_its_ragged_size(loss):
    """torch names that size after the tensor of offsets, which has to stay the same one."""

    def second(fn):
        v = torch.arange(12.0).reshape(6, 2) / 10
        jagged = torch.nested.nested_tensor_from_jagged(v, torch.tensor([0, 2, 6])).detach().requires_grad_()
        (first,) = torch.autograd.grad(fn(jagged), jagged, create_graph=True)
        loss(first).backward()
        return jagged.grad.values()

    def function(t):
        return t.sin().values().sum()

    torch.testing.assert_close(second(aotviz.compile(function, backend="eager")), second(function))
