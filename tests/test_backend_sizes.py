"""Symbolic sizes under torch.compile: views taken with a size, and backwards that are compiled with the forward."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch._dynamo.testing import CompileCounter

import aotviz
import aotviz.frontends.backend
from aotviz.lowerings import run_graph
from aotviz.torch_private import versions

pytestmark = pytest.mark.usefixtures("clean_dynamo")


def halves(x):
    return x.view(x.shape[0] // 2, -1), x.sum()


def written_and_halved(x):
    x.mul_(2)
    return x.view(x.shape[0] // 2, -1), x.sum()


def two_views(x, y):
    return y.view(-1, y.shape[0] // 2)[1:], x + 1, x.view(x.shape[0] // 2, -1)


def detached(x):
    return x.detach().view(x.shape[0] // 2, -1), x.sum()


def halved(x):
    return x.view(x.shape[0] // 2, -1)


PROGRAMS = [halves, written_and_halved, two_views, detached, halved]


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_view_of_an_input_that_is_taken_with_a_size_is_a_view_at_every_size(program, training):
    compiled = torch.compile(program, backend="aotviz_eager")
    for size in (4, 6, 8):
        seen = []
        for call in (program, compiled):
            count = program.__code__.co_argcount
            leaves = [torch.arange(3.0 * size).view(size, 3).requires_grad_(training) for _ in range(count)]
            arguments = [leaf * 1 for leaf in leaves] if training else leaves
            result = call(*arguments)
            outputs = result if isinstance(result, tuple) else (result,)
            gradients = []
            if training:
                total = sum(o.sin().sum() for o in outputs if o.requires_grad)
                gradients = torch.autograd.grad(total, leaves, allow_unused=True)
            bases = [[o._base is not None and (o._base is a or o._base is a._base) for a in arguments] for o in outputs]
            places = [(o.size(), o.stride(), o.storage_offset(), o.requires_grad) for o in outputs]
            seen.append((outputs, gradients, arguments, bases, places))
        torch.testing.assert_close(seen[1][:3], seen[0][:3])
        assert seen[1][4] == seen[0][4]
        assert seen[1][3] == seen[0][3] or program is detached  # `_base` of a tensor without grad_fn is not compared


def test_inductor_makes_the_view_again_at_the_second_size():
    compiled = torch.compile(halves, backend="aotviz")
    for size in (4, 6):
        x = torch.rand(size, 3)
        view, total = compiled(x)
        assert view._base is x
        assert view.shape == (size // 2, 6)
        torch.testing.assert_close(total, x.sum())


def fails(*_):
    raise RuntimeError("no code for this")


def test_a_backward_with_sizes_that_cannot_be_compiled_is_warned_of_and_raises_when_it_is_needed():
    compiled = aotviz.aot_function(lambda x: x.sin().view(-1) * x.shape[0], run_graph, fails, dynamic=True)
    x = torch.rand(4, 3, requires_grad=True)
    with pytest.warns(UserWarning, match=r"backward of .* could not be compiled \(RuntimeError: no code for this\)"):
        result = compiled(x)
    assert torch.equal(result, x.sin().view(-1) * 4)
    with pytest.raises(RuntimeError, match="no code for this"):
        result.sum().backward()


def grown(x, w):
    return (x.sin() * w).exp()


def rows(count):
    x = torch.randn(count, 3, requires_grad=True)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return x, torch.randn(3, requires_grad=True)


def backwards_captured_by_torch(backend):
    """How often torch's compiled autograd compiles the backward of a function that was compiled for any size."""
    compiled, count = torch.compile(grown, backend=backend), CompileCounter()
    for size in (4, 6, 8, 10):
        x, w = rows(size)
        loss = compiled(x, w).sum()
        with compiled_autograd._enable(lambda module: torch.compile(module, backend=count)):
            loss.backward()
        assert torch.allclose(x.grad, torch.autograd.grad(grown(x, w).sum(), x)[0])
    return count.frame_count


def test_a_captured_backward_has_the_sizes_symbolic_that_the_forward_had():
    """In older releases Dynamo guards a mark, so nothing of ours is marked: the second size has a program for all."""
    ours = 1 if versions.has("a mark of varying sizes has no guard") else 2
    assert backwards_captured_by_torch("aotviz_eager") == ours
    assert backwards_captured_by_torch("aot_eager") == 1


@pytest.mark.parametrize("forward", ["aotviz_eager", "aot_eager", None])
def test_a_whole_backward_is_captured_and_compiled_once_if_the_forward_had_its_sizes_symbolic(forward):
    def recorded(shape_of_loss):
        torch._dynamo.reset()
        aotviz.compiled_autograd.reset()
        function = grown if forward is None else torch.compile(grown, backend=forward)
        captured = aotviz.compiled_autograd(backend="eager")
        for size in (4, 6, 8, 10):
            x, w = rows(size)
            result = shape_of_loss(function(x, w))
            with captured as recording:
                result.backward(torch.ones_like(result))
            assert torch.allclose(x.grad, torch.autograd.grad(grown(x, w).sum(), x)[0])
        return [one.name for one in recording]

    once = ["backward", "backward, part 0"]
    inside = forward != "aot_eager" or versions.has("a captured backward has torch's compiled ones inside")
    expected = once * 2 if forward is None else once if inside else [*once, "backward, part 0"]
    assert recorded(torch.sum) == expected
    assert recorded(torch.clone) == expected


@pytest.mark.parametrize("captured", [contextlib.nullcontext(), aotviz.compiled_autograd(backend="eager")])
def test_a_backward_of_what_needs_no_gradient_raises_what_eager_raises(captured):
    with captured, pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        torch.ones(3).sum().backward()


def test_a_compiled_unpack_hook_has_the_sizes_symbolic_that_the_forward_had():
    def compilations(backend):
        torch._dynamo.reset()
        compiled, count = torch.compile(grown, backend=backend), CompileCounter()
        unpack = torch.compile(lambda tensor: tensor * 1, backend=count)
        w = torch.randn(3, requires_grad=True)
        for size in (4, 6, 8):
            x, _ = rows(size)
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
                y = compiled(x, w)
            y.sum().backward()
        return count.frame_count

    assert compilations("aotviz_eager") <= compilations("aot_eager")


def test_the_table_of_saved_tensors_has_the_dimensions_that_vary():
    compiled = aotviz.compile(grown, backend="eager")
    compiled(*rows(4))
    saved = compiled.recording[0].saved_tensors
    tensors = saved[saved.kind == "tensor"]
    assert {len(row.shape): row.varying_dims for row in tensors.itertuples()} == {2: (0,), 1: ()}
    assert "mark_saved(" in compiled.source
    static = aotviz.compile(grown, backend="eager", dynamic=False)
    static(torch.randn(4, 3, requires_grad=True), torch.randn(3))
    assert not any(static.recording[0].saved_tensors.varying_dims)
    assert "mark_saved(" not in static.source


def test_inductor_has_every_symbol_of_what_is_saved_also_those_that_no_operator_of_the_backward_reads():
    def loss(x, y, weight):
        return (torch.cat([x, y]).sort(0).values @ weight).sin().sum()  # saves rows(x) + rows(y) rows, and no x or y

    compiled = aotviz.compile(loss, backend="inductor", dynamic=True)
    weight = torch.randn(4, 4, requires_grad=True)
    for size in (5, 7):
        inputs = torch.randn(size, 4), torch.randn(size + 2, 4), weight
        gradients = [torch.autograd.grad(run(*inputs), weight) for run in (compiled, loss)]
        torch.testing.assert_close(*gradients)
