"""Backwards that write to inputs or to saved values are compiled, and do what eager does: values and versions."""

from __future__ import annotations

import itertools
import random
import warnings

import pytest
import torch

import aotviz
import aotviz.frontends.backend


class Writes(torch.autograd.Function):
    """Keeps `target` in one of three ways, and writes to it in the backward."""

    @staticmethod
    def forward(ctx, x, target, how, writes):
        ctx.how, ctx.writes = how, writes
        made = x.sin()
        ctx.save_for_backward(x, made, *([target] if how == "saved" else ()))
        if how in ("kept", *ALIASES):
            ctx.target = target
        return made * 2

    @staticmethod
    def backward(ctx, gradient):
        x, made, *saved = ctx.saved_tensors
        target = saved[0] if saved else made if ctx.how == "made" else ctx.target
        result = gradient * x.cos() * 2
        for write in ctx.writes:
            if write == "add":
                target.add_(gradient.sum())
            elif write == "mul":
                target.mul_(2)
            elif write == "copy":
                target.copy_(gradient * x)
            elif write == "read":
                result = result + target * 0.5
        return result, None, None, None


AFTER = {
    "nothing": lambda y, x, b: y,
    "product": lambda y, x, b: (y * x.exp()).sum(),
    "reads it": lambda y, x, b: y * b.sin(),
}
ALIASES = {
    "kept detached": lambda b: b.detach(),
    "kept as a view": lambda b: b.detach().view(3, 1)[:, 0],
}
HOW, WRITE = ("saved", "kept", "made", *ALIASES), ("add", "mul", "copy", "read")


def program(how, writes, before, after):
    def f(x, b):
        inside = x.cos() if before else x
        target = ALIASES[how](b) if how in ALIASES else b
        return AFTER[after](Writes.apply(inside, target, how, writes), x, b)

    return f


def outcome(function, action, view):
    torch.manual_seed(0)
    x, b = torch.randn(3, requires_grad=True), torch.randn(3)
    b_given = b[:] if view else b
    try:
        y = function(x, b_given)
        if action == "written between":
            b.add_(1)
        y.sum().backward(retain_graph=action == "twice")
        if action == "twice":
            y.sum().backward()
    except RuntimeError:
        return "raised"
    return [*map(torch.clone, (y.detach(), x.detach(), b, x.grad)), x._version, b._version]


def same(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return all(torch.allclose(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(one, other, strict=True))


def drawn():
    chooser = random.Random(0)
    options = [HOW, (True, False), AFTER, ("once", "twice", "written between"), (True, False)]
    while True:
        writes = tuple(chooser.choices(WRITE, k=chooser.randrange(1, 4)))
        how, before, after, action, view = (chooser.choice(list(one)) for one in options)
        # A partitioner may compute b.sin() again in the backward: a write between is an error (docs/refusals.md).
        if after == "reads it" and action == "written between":
            continue
        # Eager's second backward raises; a compiled one, torch's too, gives what the first gave.
        if how == "made" and action == "twice":
            continue
        yield writes, how, before, after, action, view


def check(backend, count):
    """Compare random programs with eager. Returns how many of them ran in eager after a refusal."""
    in_eager = 0
    for writes, how, before, after, action, view in itertools.islice(drawn(), count):
        torch._dynamo.reset()
        function = program(how, writes, before, after)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            aotviz.frontends.backend._warned.clear()
            given = outcome(torch.compile(function, backend=backend), action, view)
        expected = outcome(function, action, view)
        assert same(given, expected), (writes, how, before, after, action, view, given, expected)
        in_eager += any(one.category is aotviz.RanInEager for one in told)
    return in_eager


def test_random_backwards_that_write_are_compiled_and_as_in_eager():
    assert check("aotviz_eager", 40) == 0


@pytest.mark.slow
def test_random_backwards_that_write_are_compiled_by_inductor_and_as_in_eager():
    assert check("aotviz", 12) == 0


def counts(x, b):
    return Writes.apply(x, b, "kept", ("add",))


def test_such_a_backward_cannot_be_differentiated_and_says_so():
    """torch raises too."""
    torch._dynamo.reset()
    x, b = torch.ones(3, requires_grad=True), torch.zeros(3)
    y = torch.compile(counts, backend="aotviz_eager")(x, b)
    with pytest.raises(aotviz.Refused, match="b is written by the backward"):
        torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.equal(b, torch.zeros(3))


def two_leaves(x, w, b):
    return Writes.apply(x, b, "kept", ("add",)) * w


def test_a_backward_for_some_gradients_only_does_not_write_what_eager_leaves_alone():
    torch._dynamo.reset()
    x, w, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True), torch.zeros(3)
    y = torch.compile(two_leaves, backend="aotviz_eager")(x, w, b)
    with pytest.raises(aotviz.Refused, match="b is written by the backward"):
        torch.autograd.grad(y.sum(), w)
    assert torch.equal(b, torch.zeros(3))


def test_input_that_shares_memory_with_another_is_not_taken_for_one_apart():
    torch._dynamo.reset()

    def f(x, b, c):
        return Writes.apply(x, b, "kept", ("mul",)) * c

    def called(function, make):
        x, (b, c) = torch.ones(3, requires_grad=True), make()
        try:
            function(x, b, c).sum().backward()
        except RuntimeError:
            return "raised"
        return [x.grad, b.clone(), c.clone()]

    def overlapping():
        own = torch.arange(6.0)
        return own[:3], own[1:4]

    compiled = torch.compile(f, backend="aotviz_eager")
    assert same(
        called(compiled, lambda: (torch.ones(3), torch.ones(3))), called(f, lambda: (torch.ones(3), torch.ones(3)))
    )
    with pytest.warns(aotviz.RanInEager, match="b and c were in separate storages and are overlapping views"):
        assert same(called(compiled, overlapping), called(f, overlapping))


def test_the_wrapper_says_what_the_backward_writes():
    torch._dynamo.reset()
    compiled = aotviz.compile(counts, backend="eager")
    compiled(torch.ones(3, requires_grad=True), torch.zeros(3)).sum().backward()
    assert "this backward writes b" in compiled.source
    assert "copy_" in compiled.recording[0].graph("backward").nodes["target"].str.cat(sep=" ")


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("alias", ALIASES)
def test_a_view_of_an_input_that_the_backward_writes_is_written_by_each_backward(alias, requires_grad):
    """Of a leaf that requires grad, too: nothing saved it, so no version is checked."""

    def f(x, b):
        return Writes.apply(x, ALIASES[alias](b), alias, ("read", "add")) * 2

    torch._dynamo.reset()
    found = []
    for fn in (torch.compile(f, backend="aotviz_eager", options={"on_refusal": "raise"}), f):
        x, b = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=requires_grad)
        y = fn(x, b)
        for _ in range(3):
            y.sum().backward(retain_graph=True)
        found.append([y, b, x.grad, torch.tensor(b._version)])
    torch.testing.assert_close(*found)
